"""Attempts that end in one transaction: their rows under lock, and what is to be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.answer import for_event
from reveille_heartbeat.domain.outcome import Outcome
from reveille_heartbeat.domain.retries import Failure
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, RunState
from reveille_heartbeat.domain.values import CommentStatus, FailureClass, Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases.issues.moving import related_ids
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_heartbeat.usecases.wakeups.ending import Ended
from reveille_runtime import feed
from reveille_runtime.db import Tx
from reveille_runtime.lease import Lease
from reveille_runtime.lockorder import Level, LockOrder

# States that only a run's holder writes: whoever finds one after a repeat has written it.
HOLDERS_STATES = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class Finish:
    """An attempt to bring to its end: its terminal state, what follows it, or both at once."""

    lease: Lease
    loaded: Loaded
    # None: it has its terminal state.
    outcome: Outcome | None
    # Seconds since its agent was last heard of, where that is not written yet.
    silence: float | None
    # Whether what follows it can be done: nothing of it runs any more.
    follows: bool

    @property
    def key(self) -> UUID:
        """One run is never twice in a batch."""
        return self.lease.id

    @property
    def moves_over_an_end(self) -> Issue | None:
        """Its issue, when the outcome may end it, or open it again."""
        issue, outcome = self.loaded.issue, self.outcome
        if issue is None or outcome is None or outcome.issue_status is None:
            return None
        return issue if {issue.status, outcome.issue_status} & ISSUE_TERMINAL else None


@dataclass(slots=True)
class Ending:
    """One attempt of the batch, as its rows stand and as they are to be."""

    item: Finish
    state: RunState
    reason: str
    message: str
    failure: Failure
    comment_status: CommentStatus
    left_progress: bool
    event_seq: int
    cancel_requested: bool
    # Whether we hold it; nothing may be written for one that somebody else has.
    held: bool
    finished_at: datetime | None
    follow_up_done: bool
    # Whether the outcome that we brought is the one that counts.
    won: bool = False
    result: dict[str, Any] | None = None

    @property
    def run_id(self) -> UUID:
        """The run."""
        return self.item.lease.id

    @property
    def follows(self) -> bool:
        """Whether its follow-up is to be done here: it has ended, we hold it, nothing runs."""
        return self.item.follows and self.held and self.finished_at is not None

    def end(self, outcome: Outcome, now: datetime) -> None:
        """Take the outcome for its own."""
        self.won = True
        self.state = outcome.state
        self.reason = outcome.reason.value if outcome.reason is not None else ""
        self.message = outcome.message
        self.failure = Failure(
            outcome.failure_class,
            outcome.retry_not_before,
            interrupted=outcome.state is RunState.INTERRUPTED,
        )
        self.finished_at = now
        self.result = for_event(outcome.document, outcome.summary)

    def next_seq(self) -> int:
        """Number another event of its history."""
        self.event_seq += 1
        return self.event_seq


@dataclass(slots=True)
class EndingBatch:
    """What one transaction works on."""

    tx: Tx
    now: datetime
    endings: list[Ending]
    issues: dict[UUID, Issue]
    # Those that get their terminal state here, with the outcome that gives it.
    ended: list[tuple[Ending, Outcome]] = field(default_factory=list)
    # Runs of others that end because an issue has moved.
    others: Ended = field(default_factory=Ended)
    # Those that had it before.
    late: list[Ending] = field(default_factory=list)
    history: list[RunEvent] = field(default_factory=list)
    told: list[feed.FeedEvent] = field(default_factory=list)

    def issue_of(self, ending: Ending) -> Issue | None:
        """The issue of an attempt, as it stands now."""
        issue_id = ending.item.loaded.run.issue_id
        return None if issue_id is None else self.issues[issue_id]

    async def write_runs(self) -> None:
        """Write the runs themselves, one write each."""
        await self._end()
        ended = {ending.run_id for ending, _ in self.ended}
        await self._finish(
            {
                each.run_id: each
                for each in self.endings
                if each.follows and each.run_id not in ended
            }
        )
        noted = [each for each in self.late if not each.follows]
        if noted:
            await self.tx.execute(
                Q["note_late_results"],
                [each.run_id for each in noted],
                [each.event_seq for each in noted],
            )

    async def _end(self) -> None:
        if not self.ended:
            return
        rows = await self.tx.fetch(
            Q["end_runs"],
            [ending.run_id for ending, _ in self.ended],
            [ending.item.lease.token for ending, _ in self.ended],
            [ending.state.value for ending, _ in self.ended],
            [ending.reason for ending, _ in self.ended],
            [ending.message for ending, _ in self.ended],
            [outcome.exit_code for _, outcome in self.ended],
            [outcome.summary for _, outcome in self.ended],
            [outcome.document for _, outcome in self.ended],
            [outcome.failure_class.value for _, outcome in self.ended],
            [outcome.retry_not_before for _, outcome in self.ended],
            [ending.comment_status.value for ending, _ in self.ended],
            [ending.left_progress for ending, _ in self.ended],
            [ending.event_seq for ending, _ in self.ended],
            [ending.item.follows for ending, _ in self.ended],
            [ending.item.silence for ending, _ in self.ended],
        )
        if len(rows) != len(self.ended):
            raise AssertionError("the runs are locked, and were open and ours")

    async def _finish(self, over: dict[UUID, Ending]) -> None:
        if not over:
            return
        rows = await self.tx.fetch(
            Q["finish_runs"],
            list(over),
            [each.item.lease.token for each in over.values()],
            [each.comment_status.value for each in over.values()],
            [each.event_seq for each in over.values()],
        )
        if len(rows) != len(over):
            raise AssertionError("the runs are locked, and had ended, and were ours")

    async def write(self) -> None:
        """Write history and feed, all at once."""
        await run_events.write(self.tx, self.history)
        await feed.append(self.tx, self.told)


async def lock_batch(tx: Tx, items: Sequence[Finish]) -> EndingBatch:
    """Take all locks of the batch before its first decision, and read what they cover."""
    locks = LockOrder()
    runs = [item.loaded.run for item in items]
    issues = await _lock_issues(tx, locks, items)
    wakeups = await locks.take(
        tx, Level.WAKEUP, Q["lock_wakeups_of_runs"], [run.wakeup_id for run in runs]
    )
    rows = await locks.take(tx, Level.RUN, Q["lock_ending_runs"], [run.run_id for run in runs])
    wakeup_of = {row["wakeup_id"]: row for row in wakeups}
    row_of = {row["run_id"]: row for row in rows}
    return EndingBatch(
        tx,
        await tx.fetchval(Q["read_clock"]),
        [
            _ending(item, row_of[item.lease.id], wakeup_of[item.loaded.run.wakeup_id])
            for item in items
        ],
        {row["issue_id"]: to_issue(row) for row in issues},
    )


async def _lock_issues(tx: Tx, locks: LockOrder, items: Sequence[Finish]) -> list[asyncpg.Record]:
    """Lock the attempts' issues, and what else is concerned when an issue ends or opens again."""
    ids = {run.issue_id for item in items if (run := item.loaded.run).issue_id is not None}
    moving = {issue.issue_id for item in items if (issue := item.moves_over_an_end) is not None}
    related = await related_ids(tx, moving) if moving else set()
    rows = await locks.take(tx, Level.ISSUE, Q["claim_issues"], ids | related)
    if moving and not await related_ids(tx, moving) <= ids | related:
        raise asyncpg.SerializationError("the relations of an issue changed before it was locked")
    return rows


def _ending(item: Finish, row: asyncpg.Record, wakeup: asyncpg.Record) -> Ending:
    state = RunState(row["state"])
    return Ending(
        item,
        state,
        row["reason"],
        row["message"],
        Failure(
            FailureClass(row["failure_class"]),
            row["retry_not_before"],
            interrupted=state is RunState.INTERRUPTED,
        ),
        CommentStatus(row["comment_status"]),
        row["left_progress"],
        row["event_seq"],
        wakeup["cancel_requested"],
        held=row["lease_token"] == item.lease.token,
        finished_at=row["finished_at"],
        follow_up_done=row["follow_up_done_at"] is not None,
    )
