"""Comparing open runs with what they made: the feed's safety net, and its reconcile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

import grpc

from reveille.heartbeat.v1 import issue_pb2 as issue_pb
from reveille.heartbeat.v1 import run_pb2 as agent_run_pb
from reveille.heartbeat.v1 import wakeup_pb2 as wake_pb
from reveille_autopilot.domain.deadlines import CHECK
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.outcomes import (
    IssueEnd,
    IssueFacts,
    Step,
    WakeFacts,
    WakeState,
    issue_changed,
    wakeup_settled,
)
from reveille_autopilot.domain.states import RunState
from reveille_autopilot.store import runs
from reveille_autopilot.usecases import downstream
from reveille_autopilot.usecases.call_off import CallOff
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_autopilot.usecases.settle import Moment, Settler
from reveille_runtime import logs
from reveille_runtime.db import Database
from reveille_runtime.errors import NotFound
from reveille_runtime.reasons import reason_name
from reveille_runtime.rpc_errors import from_rpc_error

_AT_ONCE = 16
_log = logs.get_logger(__name__)


class Checker:
    """Looks at the downstream objects of linked runs."""

    def __init__(
        self, db: Database, heartbeat: Heartbeat, settler: Settler, call_off: CallOff
    ) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._settler = settler
        self._call_off = call_off

    async def check(self, batch: Sequence[Run]) -> None:
        """Bring runs to the outcome that their wakeup or issue has; look at the others later."""
        at_once = asyncio.Semaphore(_AT_ONCE)
        gone: list[Run] = []

        async def look(run: Run) -> tuple[UUID, Step | None]:
            async with at_once:
                try:
                    return run.id, await self._look(run)
                except grpc.aio.AioRpcError as error:
                    problem = from_rpc_error(error)
                    if isinstance(problem, NotFound):
                        gone.append(run)
                    else:
                        _log.warning(
                            "A run could not be compared with what it made.",
                            action="check.undecided",
                            run_id=str(run.id),
                            cause=problem.message,
                        )
                    return run.id, None

        looked = dict(await asyncio.gather(*(look(run) for run in batch)))
        steps = {run_id: (step,) for run_id, step in looked.items() if step is not None}
        after = await self._settler.apply(steps, Moment.COMPLETE)
        # Their wakeup is not on record any more: only a write can tell what became of the key. For
        # those that shall be cancelled the next cancellation is that write; nobody gives them up.
        lost = [run for run in gone if run.cancel_requested_at is None]
        await self._call_off.give_up(lost)
        open_still = {
            run.id: CHECK.total_seconds()
            for run in batch
            if run not in lost and not (run.id in after and after[run.id].terminal)
        }
        if open_still:
            async with self._db.session() as tx:
                await runs.postpone(tx, open_still)

    async def _look(self, run: Run) -> Step | None:
        if run.state is RunState.ISSUE_CREATED and run.issue_id is not None:
            return await self._look_at_issue(run, run.issue_id)
        if run.wakeup_id is not None:
            return await self._look_at_wakeup(run, run.wakeup_id)
        return None

    async def _look_at_issue(self, run: Run, issue_id: UUID) -> Step:
        try:
            response = await self._heartbeat.issues.GetIssue(
                issue_pb.GetIssueRequest(issue_id=str(issue_id))
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return issue_changed(run.execution_mode, IssueFacts(issue_id, IssueEnd.GONE))
            raise
        return issue_changed(run.execution_mode, downstream.issue_facts(response.issue))

    async def _look_at_wakeup(self, run: Run, wakeup_id: UUID) -> Step:
        response = await self._heartbeat.wakeups.GetWakeup(
            wake_pb.GetWakeupRequest(wakeup_id=str(wakeup_id))
        )
        wakeup = response.wakeup
        facts = WakeFacts(
            state=downstream.wake_state(wakeup.state),
            wakeup_id=wakeup_id,
            issue_id=downstream.optional_id(wakeup.issue_id),
            reason=reason_name(wakeup.reason),
            message=wakeup.message,
            result=await self._result(wakeup),
        )
        return wakeup_settled(run.execution_mode, run.issue_id is not None, facts)

    async def _result(self, wakeup: wake_pb.WakeupRecord) -> bytes | None:
        """Read what the last attempt answered, in the form that the event would have brought."""
        ended = {WakeState.COMPLETED, WakeState.FAILED}
        if downstream.wake_state(wakeup.state) not in ended or not wakeup.run_id:
            return None
        try:
            response = await self._heartbeat.agent_runs.GetRun(
                agent_run_pb.GetRunRequest(run_id=wakeup.run_id)
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                # Kept for a shorter time than the wakeup; the outcome does not depend on it.
                return None
            raise
        if not response.run.result:
            summary = response.run.summary
            return downstream.result_json({"summary": summary}) if summary else None
        answered = json.loads(response.run.result)
        if isinstance(answered, dict):
            answered.setdefault("summary", response.run.summary)
        return downstream.result_json(answered)
