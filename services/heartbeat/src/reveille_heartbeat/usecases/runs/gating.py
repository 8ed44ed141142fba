"""Reading what gates ask of runs that wait, and ending the runs that they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from reveille_heartbeat.domain.gates import CANCELS, Waiting
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import Agent, Issue, Refusal, Wakeup
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.agents.targets import read_managers
from reveille_heartbeat.usecases.issues.obstacles import open_blockers, pausing_holds
from reveille_heartbeat.usecases.wakeups.ending import end_queued_run, settle_wakeup
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.db import Tx


class WaitingRun(Protocol):
    """A run that waits, in the queue or for its time."""

    @property
    def run_id(self) -> UUID: ...  # noqa: D102
    @property
    def wakeup_id(self) -> UUID: ...  # noqa: D102
    @property
    def agent_id(self) -> UUID: ...  # noqa: D102
    @property
    def issue_id(self) -> UUID | None: ...  # noqa: D102
    @property
    def retry_of_run_id(self) -> UUID | None: ...  # noqa: D102
    @property
    def retry_reason(self) -> str: ...  # noqa: D102


async def read_waiting(
    tx: Tx,
    runs: Sequence[WaitingRun],
    agents: Mapping[UUID, Agent],
    issues: Mapping[UUID, Issue],
    wakeups: Mapping[UUID, Wakeup],
) -> list[Waiting]:
    """Put together what the gates look at; agents, issues and wakeups are locked."""
    holds = await pausing_holds(tx, issues)
    blockers = await open_blockers(tx, issues)
    managers = await read_managers(tx, agents.values())
    return [
        Waiting(
            run.run_id,
            run.retry_of_run_id,
            run.retry_reason,
            run.agent_id,
            Target(agents[run.agent_id], managers=managers),
            wakeups[run.wakeup_id],
            None if run.issue_id is None else issues[run.issue_id],
            None if run.issue_id is None else holds.get(run.issue_id),
            () if run.issue_id is None else tuple(blockers.get(run.issue_id, ())),
        )
        for run in runs
    ]


async def refuse(
    tx: Tx,
    refused: Iterable[tuple[WaitingRun, Refusal]],
    wakeups: Mapping[UUID, Wakeup],
    promotion: Promotion,
) -> int:
    """End runs that must not begin, with all that follows from it; give how many ended here."""
    ended = 0
    freed: dict[UUID, UUID | None] = {}
    for run, refusal in refused:
        if await end_queued_run(tx, run.run_id, refusal.reason, refusal.message) is None:
            continue
        ended += 1
        wakeup = wakeups[run.wakeup_id]
        # A repeat has begun its work before: that cannot be called skipped any more.
        skipped = wakeup.state is WakeupState.QUEUED and refusal.reason not in CANCELS
        state = WakeupState.SKIPPED if skipped else WakeupState.CANCELLED
        await settle_wakeup(tx, wakeup, state, refusal.reason.value, refusal.message, None)
        if run.issue_id is not None:
            await tx.execute(Q["pass_execution"], [run.issue_id], [run.run_id], [None])
            freed[run.issue_id] = run.run_id
    await promotion.promote(tx, freed)
    return ended
