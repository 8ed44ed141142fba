"""Calling runs off: because somebody asked, or because they are given up.

Both cancel downstream first: a look-up never proves that nothing was made, and a cancellation of
an unknown key is recorded, so that a late call finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import grpc

from reveille_autopilot.domain.deadlines import CANCEL_AGAIN
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.outcomes import Step, WakeFacts, cancelled_downstream, given_up
from reveille_autopilot.store import autopilots, runs
from reveille_autopilot.usecases import downstream
from reveille_autopilot.usecases.dispatch import AGAIN
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_autopilot.usecases.settle import Moment, Settler
from reveille_autopilot.usecases.standing import may_run, not_found, standing_of, too_weak
from reveille_runtime import logs
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.errors import DomainError
from reveille_runtime.rpc_errors import from_rpc_error

_log = logs.get_logger(__name__)


class CallOff:
    """Cancels and gives up runs."""

    def __init__(self, db: Database, heartbeat: Heartbeat, settler: Settler) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._settler = settler

    async def request(self, actor: Actor, run_id: UUID) -> Run:
        """Remember that a run shall be cancelled, and begin; the sweep goes on until it is."""
        async with self._db.transaction() as tx:
            run = (await runs.get(tx, [run_id])).get(run_id)
            if run is None:
                raise not_found("run", run_id)
            standing = await standing_of(tx, actor, run.workspace_id)
            if not standing.belongs:
                raise not_found("run", run_id)
            rule = await autopilots.get(tx, run.autopilot_id)
            may = standing.started(run.originator_user_id) or (
                rule is not None and await may_run(tx, standing, rule)
            )
            if not may:
                raise too_weak(
                    "who started the run, the rule's creator, or an administrator or owner"
                )
            wanted = await runs.request_cancel(tx, run_id, actor.subject)
        if not wanted:
            # It has its outcome, perhaps since a moment ago.
            return await self._read(run_id)
        crash_point("autopilot.cancel.after_request")
        await self.cancel([await self._read(run_id)])
        return await self._read(run_id)

    async def cancel(self, batch: Sequence[Run]) -> list[Run]:
        """Cancel what runs have made, and the runs with it.

        Gives the open runs whose wakeups had ended before: cancelling those again tells nothing
        more, and the event may have been missed.
        """
        answers = await self._call(batch)
        crash_point("autopilot.cancel.after_call")
        after = await self._settle(
            batch,
            {
                run.id: cancelled_downstream(run.execution_mode, facts, recorded=recorded)
                for run, facts, recorded in answers
            },
            Moment.CANCEL,
        )
        ended = [run.id for run, facts, _ in answers if facts.ended_by_itself]
        return [after[each] for each in ended if each in after and not after[each].terminal]

    async def give_up(self, batch: Sequence[Run]) -> None:
        """End pending runs whose time is over."""
        if not batch:
            return
        crash_point("autopilot.give_up.before_call")
        answers = await self._call(batch)
        crash_point("autopilot.give_up.after_call")
        await self._settle(
            batch,
            {
                run.id: given_up(run.execution_mode, facts, recorded=recorded)
                for run, facts, recorded in answers
            },
            Moment.GIVE_UP,
        )

    async def _call(self, batch: Sequence[Run]) -> list[tuple[Run, WakeFacts, bool]]:
        if not batch:
            return []
        try:
            return await downstream.cancel_wakeups(self._heartbeat, batch)
        except grpc.aio.AioRpcError as error:
            problem: DomainError = from_rpc_error(error)
            _log.warning(
                "Runs could not be called off; it will be repeated.",
                action="call_off.undecided",
                runs=len(batch),
                cause=problem.message,
            )
            return []

    async def _settle(
        self, batch: Sequence[Run], steps: dict[UUID, Step], moment: Moment
    ) -> dict[UUID, Run]:
        after = await self._settler.apply(
            {run_id: (step,) for run_id, step in steps.items()}, moment
        )
        later = {
            run.id: _later(run)
            for run in batch
            if run.id not in after or not after[run.id].terminal
        }
        if later:
            async with self._db.session() as tx:
                await runs.postpone(tx, later)
        return after

    async def _read(self, run_id: UUID) -> Run:
        async with self._db.session() as tx:
            return (await runs.get(tx, [run_id]))[run_id]


def _later(run: Run) -> float:
    if run.cancel_requested_at is not None:
        return CANCEL_AGAIN.total_seconds()
    return AGAIN.delay(run.attempts + 1, run.id)
