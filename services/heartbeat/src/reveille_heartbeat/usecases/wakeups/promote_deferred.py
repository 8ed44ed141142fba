"""Promotion: when an issue is free, the oldest wake that waited for it gets its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from reveille_heartbeat.domain.enqueue import Facts, notes
from reveille_heartbeat.domain.promoting import GiveUp, Promote, promotion_of, wish_of
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Wakeup, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.issues.moving import move_issue
from reveille_heartbeat.usecases.wakeups.deciding import Decider
from reveille_heartbeat.usecases.wakeups.ending import settle_wakeup
from reveille_heartbeat.usecases.wakeups.recording import NewRun, queue_runs, queued_event
from reveille_heartbeat.usecases.wakeups.wish_facts import read_facts
from reveille_runtime import feed, logs
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder

_log = logs.get_logger(__name__)
_PAGE = 100


@dataclass(frozen=True, slots=True)
class _Turn:
    """A wake that gets its turn, with its first attempt."""

    wakeup: Wakeup
    wish: Wish
    run: NewRun


class Promotion:
    """Inside the transaction of whoever has freed issues, and holds their locks."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    async def promote(self, tx: Tx, ended: Mapping[UUID, UUID | None]) -> list[UUID]:
        """Queue the oldest deferred wake of each issue that has one; give the runs.

        `ended` names per issue the run that has just ended on it, if one did. An issue on which
        another run waits or works stays as it is: that one's end comes, too.
        """
        runs: list[UUID] = []
        rows = await tx.fetch(Q["oldest_deferred"], sorted(ended)) if ended else []
        if rows:
            asked = sorted({row["issue_id"] for row in rows})
            busy = {row["issue_id"] for row in await tx.fetch(Q["issues_with_run"], asked)}
            rows = [row for row in rows if row["issue_id"] not in busy]
        while rows:
            wakeups = [to_wakeup(row) for row in rows]
            wishes = [wish_of(wakeup) for wakeup in wakeups]
            found = await read_facts(tx, wishes, suppressed=False)
            turns: list[_Turn] = []
            # An issue whose oldest wake is given up has perhaps another one.
            waiting: list[UUID] = []
            for wakeup, wish in zip(wakeups, wishes, strict=True):
                facts = found.facts(wish)
                if facts.issue is None or wish.issue_id is None:
                    raise AssertionError("a deferred wake waits for an issue whose lock is held")
                verdict = promotion_of(wish, facts, ended[wish.issue_id])
                match verdict:
                    case GiveUp():
                        await _give_up(tx, wakeup, verdict)
                        waiting.append(wish.issue_id)
                    case Promote():
                        turns.append(await self._turn(tx, wakeup, wish, facts, verdict))
            await _queue(tx, turns)
            runs += [turn.run.run_id for turn in turns]
            rows = await tx.fetch(Q["oldest_deferred"], sorted(waiting)) if waiting else []
        return runs

    async def _turn(
        self, tx: Tx, wakeup: Wakeup, wish: Wish, facts: Facts, verdict: Promote
    ) -> _Turn:
        context = dict(wish.context)
        if verdict.reopens and facts.issue is not None:
            context["reopened_from"] = facts.issue.status.value
            reopened = await move_issue(tx, facts.issue, IssueState.TODO)
            if reopened is None:
                raise AssertionError("the lock is held, and what has ended can be opened again")
            facts = replace(facts, issue=reopened)
        wish = replace(wish, context={**context, **notes(wish, facts)})
        run = self._decider.new_run(wish, facts, wakeup.responsible_user_id, wakeup.trace_carrier)
        return _Turn(wakeup, wish, run)


async def _give_up(tx: Tx, wakeup: Wakeup, verdict: GiveUp) -> None:
    reason = verdict.refusal.reason.value
    settled = await settle_wakeup(tx, wakeup, verdict.state, reason, verdict.refusal.message, None)
    if not settled:
        raise AssertionError("the issue's lock is held, and the wake was deferred")


async def _queue(tx: Tx, turns: Sequence[_Turn]) -> None:
    if not turns:
        return
    promoted = await tx.execute(
        Q["promote_deferred"],
        [turn.wakeup.wakeup_id for turn in turns],
        [turn.run.run_id for turn in turns],
        [dict(turn.wish.context) for turn in turns],
    )
    if promoted != len(turns):
        raise AssertionError("the issues' locks are held, and the wakes were deferred")
    await queue_runs(tx, [turn.run for turn in turns])
    await feed.append(
        tx,
        [
            queued_event(turn.run, turn.wakeup.occurrence_key, turn.wakeup.trace_carrier)
            for turn in turns
        ],
    )


class PromoteStranded:
    """Finds deferred wakes that no ending run will promote."""

    def __init__(self, db: Database, notifier: Notifier, promotion: Promotion) -> None:
        self._db = db
        self._notifier = notifier
        self._promotion = promotion

    async def __call__(self) -> int:
        """Promote one wake per issue; give how many were. One that fails leaves the others."""
        promoted, after = 0, UUID(int=0)
        while True:
            async with self._db.session() as tx:
                rows = await tx.fetch(Q["stranded_issues"], after, _PAGE)
            for row in rows:
                promoted += await self._one(row["issue_id"])
            if len(rows) < _PAGE:
                break
            after = rows[-1]["issue_id"]
        if promoted:
            self._notifier.notify(channels.QUEUE, channels.FEED)
        return promoted

    async def _one(self, issue_id: UUID) -> int:
        async def promote(tx: Tx) -> int:
            await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
            # A run may have come since the look without the lock.
            return len(await self._promotion.promote(tx, {issue_id: None}))

        try:
            return await retrying_transaction(self._db, promote, repeatable=True)
        except Exception:  # noqa: BLE001 - one issue's trouble is not the others'
            _log.exception(
                "A wake that waits could not be promoted; the next sweep tries again.",
                action="promotion.failed",
                issue_id=str(issue_id),
            )
            return 0
