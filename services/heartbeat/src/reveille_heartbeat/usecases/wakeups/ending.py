"""Ending wakeups before their work is done, inside the transaction of whoever ends them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.followup import joined_state
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WAKEUP_TERMINAL, RunState, WakeupState
from reveille_heartbeat.domain.values import Run, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run, to_wakeup
from reveille_heartbeat.usecases import events
from reveille_heartbeat.usecases.runs import run_events
from reveille_heartbeat.usecases.runs.run_events import RunEvent
from reveille_runtime import feed
from reveille_runtime.db import Tx

# From where each end can be reached, by the table of transitions.
OPEN = (WakeupState.QUEUED, WakeupState.DEFERRED, WakeupState.CLAIMED, WakeupState.COALESCED)


@dataclass(slots=True)
class Ended:
    """What a transaction has ended, for what follows its commit."""

    # Runs that got their terminal state here.
    runs: list[Run] = field(default_factory=list)
    # Whether one of them has a process that its executor must end.
    stops: bool = False

    def clear(self) -> None:
        """Forget what a transaction did that is repeated."""
        self.runs.clear()
        self.stops = False


async def settle_wakeup(
    tx: Tx, wakeup: Wakeup, state: WakeupState, reason: str, message: str, run: Run | None
) -> bool:
    """Give a wakeup, and whatever joined it, its outcome and tell of it; False if it has one."""
    row = await tx.fetchrow(
        Q["settle_wakeup"],
        wakeup.wakeup_id,
        [each.value for each in OPEN],
        state.value,
        reason,
        message,
    )
    if row is None:
        return False
    joined = await tx.fetch(
        Q["settle_joined"], wakeup.wakeup_id, joined_state(state).value, reason, message
    )
    told = [events.wakeup_settled(to_wakeup(each), run) for each in (row, *joined)]
    await feed.append(tx, told)
    return True


async def end_queued_run(tx: Tx, run_id: UUID, reason: Reason, message: str) -> Run | None:
    """End an attempt that never began; None when it has begun or ended meanwhile."""
    row = await tx.fetchrow(Q["cancel_queued_run"], run_id, reason.value, message)
    return await _ended(tx, row, message)


async def end_running_run(
    tx: Tx, run_id: UUID, state: RunState, reason: Reason, message: str
) -> Run | None:
    """Give an attempt its terminal state from outside; its holder does the rest.

    None when it has one: a result that was there first stays.
    """
    row = await tx.fetchrow(Q["end_running_run"], run_id, state.value, reason.value, message)
    return await _ended(tx, row, message)


async def _ended(tx: Tx, row: asyncpg.Record | None, message: str) -> Run | None:
    if row is None:
        return None
    run = to_run(row)
    wakeup = (await tx.fetch(Q["find_wakeups"], [run.wakeup_id]))[0]
    seq: int = row["event_seq"]
    await run_events.write(
        tx, [RunEvent(run.run_id, seq, f"run.{run.state.value}", message, {"reason": run.reason})]
    )
    await feed.append(
        tx, [events.run_status(run, wakeup["occurrence_key"], wakeup["trace_carrier"])]
    )
    return run


async def cancel_wakeup(
    tx: Tx, wakeup_id: UUID, reason: Reason, message: str, ended: Ended
) -> WakeupState:
    """Cancel a wakeup; the caller holds the lock of its issue, if it has one.

    Gives where it stands for the one who asked: cancelled as soon as nothing else can come of it,
    although an attempt that runs is settled by its executor once the process is gone.
    """
    await tx.fetch(Q["lock_wakeups"], [wakeup_id])
    wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [wakeup_id]))[0])
    if wakeup.state in WAKEUP_TERMINAL:
        return wakeup.state
    match wakeup.state:
        case WakeupState.DEFERRED | WakeupState.COALESCED:
            await settle_wakeup(tx, wakeup, WakeupState.CANCELLED, reason.value, message, None)
            return WakeupState.CANCELLED
        case WakeupState.QUEUED | WakeupState.CLAIMED:
            return await _cancel_attempt(tx, wakeup, reason, message, ended)
        case _:
            raise AssertionError(f"{wakeup.state} is terminal")


async def cancel_issue_wakeups(
    tx: Tx, issue_id: UUID, reason: Reason, message: str, ended: Ended
) -> int:
    """Cancel all wakeups of an issue whose lock is held, runs at work included; give how many."""
    rows = await tx.fetch(Q["unsettled_wakeups_of_issue"], issue_id)
    for wakeup_id in sorted(row["wakeup_id"] for row in rows):
        await cancel_wakeup(tx, wakeup_id, reason, message, ended)
    return len(rows)


async def end_waiting_wakeup(
    tx: Tx, wakeup_id: UUID, reason: Reason, message: str, ended: Ended
) -> bool:
    """End a wakeup that nobody works on yet; False when an attempt of it is at work, or it ended.

    The caller holds the lock of its issue. One that has been worked on before is cancelled, any
    other is skipped: nothing was done for it.
    """
    await tx.fetch(Q["lock_wakeups"], [wakeup_id])
    wakeup = to_wakeup((await tx.fetch(Q["find_wakeups"], [wakeup_id]))[0])
    if wakeup.state in WAKEUP_TERMINAL or wakeup.state is WakeupState.COALESCED:
        return False
    if wakeup.run_id is not None:
        run = await end_queued_run(tx, wakeup.run_id, reason, message)
        if run is None:
            return False
        ended.runs.append(run)
    begun = wakeup.state is WakeupState.CLAIMED
    state = WakeupState.CANCELLED if begun else WakeupState.SKIPPED
    return await settle_wakeup(tx, wakeup, state, reason.value, message, None)


async def _cancel_attempt(
    tx: Tx, wakeup: Wakeup, reason: Reason, message: str, ended: Ended
) -> WakeupState:
    await tx.execute(Q["request_cancel"], wakeup.wakeup_id)
    if wakeup.run_id is None:
        raise AssertionError("a wakeup in the queue names its run")
    run = await end_queued_run(tx, wakeup.run_id, reason, message)
    if run is not None:
        ended.runs.append(run)
        await settle_wakeup(tx, wakeup, WakeupState.CANCELLED, reason.value, message, None)
        return WakeupState.CANCELLED
    run = await end_running_run(tx, wakeup.run_id, RunState.CANCELLED, reason, message)
    if run is not None:
        ended.runs.append(run)
        ended.stops = True
        return WakeupState.CANCELLED
    attempt = to_run((await tx.fetch(Q["find_runs"], [wakeup.run_id]))[0])
    match attempt.state:
        case RunState.CANCELLED:
            return WakeupState.CANCELLED
        case RunState.SUCCEEDED | RunState.INTERRUPTED | RunState.FAILED | RunState.TIMED_OUT:
            # Its follow-up is under way and knows of the request: no other attempt is made.
            return WakeupState.CLAIMED
        case RunState.QUEUED | RunState.SCHEDULED_RETRY | RunState.RUNNING:
            raise AssertionError(f"run {attempt.run_id} moved under the lock of its wakeup")
        case _:
            assert_never(attempt.state)
