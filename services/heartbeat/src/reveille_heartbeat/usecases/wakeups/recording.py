"""Writing down what was decided about wishes: a row in every case, and a run where work starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.placing import OpenWake
from reveille_heartbeat.domain.states import WAKEUP_TERMINAL, RunState, WakeupState
from reveille_heartbeat.domain.values import Carrier, Wakeup, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import events
from reveille_runtime import feed
from reveille_runtime.db import Tx


@dataclass(frozen=True, slots=True)
class NewRun:
    """An attempt that enters the queue, with the identities of its spans."""

    run_id: UUID
    wakeup_id: UUID
    workspace_id: UUID
    agent_id: UUID
    issue_id: UUID | None
    ready_rank: int
    priority: int
    responsible_user_id: str
    run_carrier: Carrier
    agent_carrier: Carrier
    attempt: int = 1
    retry_of_run_id: UUID | None = None
    retry_reason: str = ""
    # When a repeat may enter the queue; None is now.
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """A wish and what became of it."""

    wish: Wish
    state: WakeupState
    carrier: Carrier
    responsible_user_id: str = ""
    reason: str = ""
    message: str = ""
    joined: OpenWake | None = None
    # The attempt of the wake it joined shall not wait for its time any longer.
    hurry: bool = False
    run: NewRun | None = None
    # How many wishes of the same batch have joined it.
    coalesced_count: int = 0
    # How much its run is told, by these as well.
    told_bytes: int = 0


async def record(tx: Tx, decided: Sequence[Decided], now: datetime) -> None:
    """Insert wakeups, payloads, runs and events."""
    if not decided:
        return
    await tx.execute(
        Q["insert_wakeups"],
        [each.wish.wakeup_id for each in decided],
        [each.wish.workspace_id for each in decided],
        [each.wish.agent_id for each in decided],
        [each.wish.source.value for each in decided],
        [each.wish.wake_reason for each in decided],
        [each.wish.title for each in decided],
        [each.wish.issue_id for each in decided],
        [each.state.value for each in decided],
        [each.reason for each in decided],
        [each.message for each in decided],
        [each.wish.caller for each in decided],
        [each.wish.idempotency_key for each in decided],
        [each.wish.origin.occurrence_key for each in decided],
        [each.wish.origin.originator_user_id for each in decided],
        [each.wish.origin.accountable_user_id for each in decided],
        [each.responsible_user_id for each in decided],
        [each.wish.origin.autopilot_run_id for each in decided],
        [each.joined.wakeup_id if each.joined else None for each in decided],
        [each.run.run_id if each.run else None for each in decided],
        [dict(each.carrier) for each in decided],
        [each.state in WAKEUP_TERMINAL for each in decided],
        [each.wish.squad_id for each in decided],
        [each.wish.requester.kind.value for each in decided],
        [each.wish.requester.id for each in decided],
        [each.wish.task_key for each in decided],
        [array_of(each.wish.comment_ids) for each in decided],
        [each.wish.fresh_session for each in decided],
        [dict(each.wish.context) for each in decided],
        [each.coalesced_count for each in decided],
        [each.told_bytes for each in decided],
    )
    await tx.execute(
        Q["insert_payloads"],
        [each.wish.wakeup_id for each in decided],
        [each.wish.prompt for each in decided],
        [each.wish.payload.content_type for each in decided],
        [each.wish.payload.body for each in decided],
        [each.wish.payload.delivery_id for each in decided],
        [dict(each.wish.payload.facts) for each in decided],
    )
    await queue_runs(tx, [each.run for each in decided if each.run])
    await feed.append(tx, [_event(each, now) for each in decided if _tells(each)])


def array_of(ids: Iterable[UUID]) -> str:
    """Write ids as an array literal: arrays of arrays cannot travel as they are."""
    return "{" + ",".join(map(str, ids)) + "}"


async def queue_runs(tx: Tx, runs: Sequence[NewRun]) -> None:
    """Put attempts into the queue; each may wait there as long as its agent says."""
    if not runs:
        return
    await tx.execute(
        Q["insert_runs"],
        [run.run_id for run in runs],
        [run.workspace_id for run in runs],
        [run.agent_id for run in runs],
        [run.wakeup_id for run in runs],
        [run.issue_id for run in runs],
        [run.attempt for run in runs],
        [run.retry_of_run_id for run in runs],
        [run.retry_reason for run in runs],
        [run.ready_rank for run in runs],
        [run.priority for run in runs],
        [run.responsible_user_id for run in runs],
        [dict(run.run_carrier) for run in runs],
        [dict(run.agent_carrier) for run in runs],
        [run.due_at for run in runs],
    )


def _tells(each: Decided) -> bool:
    return each.run is not None or each.state in WAKEUP_TERMINAL


def _event(each: Decided, now: datetime) -> feed.FeedEvent:
    if each.run is not None:
        return queued_event(each.run, each.wish.origin.occurrence_key, each.carrier)
    return events.wakeup_settled(_as_wakeup(each, now), None)


def queued_event(run: NewRun, occurrence_key: str | None, carrier: Carrier) -> feed.FeedEvent:
    """Tell that an attempt entered the queue."""
    return feed.FeedEvent(
        "run.queued",
        run.run_id,
        run.workspace_id,
        occurrence_key or "",
        {
            "run_id": str(run.run_id),
            "wakeup_id": str(run.wakeup_id),
            "state": (RunState.QUEUED if run.due_at is None else RunState.SCHEDULED_RETRY).value,
            "attempt": run.attempt,
            "reason": run.retry_reason,
        },
        carrier,
    )


def _as_wakeup(each: Decided, now: datetime) -> Wakeup:
    wish = each.wish
    return Wakeup(
        wakeup_id=wish.wakeup_id,
        workspace_id=wish.workspace_id,
        agent_id=wish.agent_id,
        source=wish.source,
        wake_reason=wish.wake_reason,
        title=wish.title,
        state=each.state,
        reason=each.reason,
        message=each.message,
        issue_id=wish.issue_id,
        run_id=None,
        occurrence_key=wish.origin.occurrence_key,
        joined_wakeup_id=None,
        originator_user_id=wish.origin.originator_user_id,
        accountable_user_id=wish.origin.accountable_user_id,
        responsible_user_id=each.responsible_user_id,
        autopilot_run_id=wish.origin.autopilot_run_id,
        attempts=0,
        cancel_requested=False,
        trace_carrier=each.carrier,
        created_at=now,
        claimed_at=None,
        finished_at=now,
        squad_id=wish.squad_id,
        requester=wish.requester,
        task_key=wish.task_key,
        comment_ids=wish.comment_ids,
        fresh_session=wish.fresh_session,
        coalesced_count=0,
        context=wish.context,
    )
