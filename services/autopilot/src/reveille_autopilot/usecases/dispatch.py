"""dispatch(run): the one way from a run to its downstream object, for every source and the sweep.

It repeats the downstream call with the run's own key, as often as it takes: heartbeat makes one
object per key. What cannot be decided now is left to the sweep; a refusal is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import grpc
from opentelemetry.trace import Span, Status, StatusCode

from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.outcomes import Step
from reveille_autopilot.domain.states import ExecutionMode, Reason, RunState
from reveille_autopilot.store import people, runs
from reveille_autopilot.usecases import downstream
from reveille_autopilot.usecases.peers import Heartbeat, is_refusal
from reveille_autopilot.usecases.settle import Moment, Settler
from reveille_autopilot.usecases.summary import RunTracing
from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.batcher import Batcher
from reveille_runtime.carrier import Carrier
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.rpc_errors import from_rpc_error

# EnqueueWakeups takes 3 MiB; the rest is for titles, facts and framing.
MAX_BATCH_BYTES = 2 * 1024 * 1024
AGAIN = Backoff(first=1.0, longest=60.0)
_ISSUES_AT_ONCE = 16
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Item:
    run_id: UUID
    size: int
    carrier: Carrier = field(default_factory=dict)


class Dispatcher:
    """Makes downstream objects by the batch; a run is never under way twice in one process."""

    def __init__(
        self, db: Database, heartbeat: Heartbeat, settler: Settler, tracing: RunTracing
    ) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._settler = settler
        self._tracing = tracing
        self.batcher: Batcher[_Item, Run] = Batcher(
            "autopilot.dispatch",
            self._dispatch,
            max_bytes=MAX_BATCH_BYTES,
            size=lambda item: item.size,
            key=lambda item: item.run_id,
        )

    async def dispatch(self, run: Run, carrier: Carrier | None = None, size: int = 0) -> Run:
        """Dispatch a run and give it as it then stands; still pending means undecided.

        `carrier` is the trace of whoever asks; `size` is that of a payload stored since the run
        was read.
        """
        weight = max(size, run.payload_bytes) + len(run.prompt.encode())
        return await self.batcher.submit(_Item(run.id, weight, carrier or {}))

    async def _dispatch(self, items: Sequence[_Item]) -> list[Run]:
        carriers = {item.run_id: item.carrier for item in items}
        async with self._db.session() as tx:
            found = await runs.get(tx, list(carriers))
            ready = [run for run in found.values() if _dispatchable(run)]
            payloads = await runs.payloads(tx, [run.id for run in ready]) if ready else {}
            followers = await people.subscribers(tx, _making_issues(ready))
        spans = {run.id: self._tracing.dispatching(run, carriers[run.id]) for run in ready}
        try:
            after = await self._make(ready, payloads, followers)
        finally:
            for span in spans.values():
                span.end()
        found |= after
        _describe(spans, found)
        return [found[item.run_id] for item in items]

    async def _make(
        self,
        ready: Sequence[Run],
        payloads: Mapping[UUID, Payload],
        followers: Mapping[UUID, Sequence[str]],
    ) -> dict[UUID, Run]:
        if not ready:
            return {}
        crash_point("autopilot.dispatch.before_call")
        wakes = [run for run in ready if run.execution_mode is ExecutionMode.RUN_ONLY]
        issues = [run for run in ready if run.execution_mode is ExecutionMode.CREATE_ISSUE]
        steps, more = await asyncio.gather(
            self._enqueue(wakes, payloads), self._create_issues(issues, payloads, followers)
        )
        steps |= more
        decided = await self._settler.without_given_up(
            {run_id: (step,) for run_id, step in steps.items()}
        )
        crash_point("autopilot.dispatch.before_link")
        undecided = {
            run.id: AGAIN.delay(run.attempts + 1, run.id) for run in ready if run.id not in decided
        }
        if undecided:
            async with self._db.session() as tx:
                await runs.postpone(tx, undecided)
        return await self._settler.apply(decided, Moment.LINK)

    async def _enqueue(
        self, batch: Sequence[Run], payloads: Mapping[UUID, Payload]
    ) -> dict[UUID, Step]:
        """Enqueue wakeups; a batch that is refused as a whole is halved down to the culprit."""
        if not batch:
            return {}
        try:
            return await downstream.enqueue_wakeups(self._heartbeat, batch, payloads)
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            if is_refusal(problem) and len(batch) > 1:
                middle = len(batch) // 2
                first = await self._enqueue(batch[:middle], payloads)
                return first | await self._enqueue(batch[middle:], payloads)
            return _refused(batch, problem.message) if is_refusal(problem) else _undecided(error)

    async def _create_issues(
        self,
        batch: Sequence[Run],
        payloads: Mapping[UUID, Payload],
        followers: Mapping[UUID, Sequence[str]],
    ) -> dict[UUID, Step]:
        at_once = asyncio.Semaphore(_ISSUES_AT_ONCE)

        async def create(run: Run) -> dict[UUID, Step]:
            async with at_once:
                try:
                    return await downstream.create_issue(
                        self._heartbeat, run, payloads[run.id], followers[run.autopilot_id]
                    )
                except grpc.aio.AioRpcError as error:
                    problem = from_rpc_error(error)
                    if is_refusal(problem):
                        return _refused([run], problem.message)
                    return _undecided(error)

        steps: dict[UUID, Step] = {}
        for made in await asyncio.gather(*(create(run) for run in batch)):
            steps |= made
        return steps


def _dispatchable(run: Run) -> bool:
    """Tell whether there is something to make: cancellation is the sweep's, so is giving up."""
    return run.state is RunState.PENDING and run.payload_ready and run.cancel_requested_at is None


def _making_issues(batch: Sequence[Run]) -> list[UUID]:
    """Name the rules whose followers go with an issue."""
    issues = {run.autopilot_id for run in batch if run.execution_mode is ExecutionMode.CREATE_ISSUE}
    return sorted(issues)


def _refused(batch: Sequence[Run], message: str) -> dict[UUID, Step]:
    step = Step(RunState.FAILED, Reason.DISPATCH_FAILED, message)
    return {run.id: step for run in batch}


def _undecided(error: grpc.aio.AioRpcError) -> dict[UUID, Step]:
    _log.warning(
        "Heartbeat could not be asked; the runs stay pending.",
        action="dispatch.undecided",
        cause=f"{error.code().name}: {error.details()}",
    )
    return {}


def _describe(spans: Mapping[UUID, Span], found: Mapping[UUID, Run]) -> None:
    for run_id, span in spans.items():
        if span.is_recording() and found[run_id].state is RunState.PENDING:
            span.set_status(Status(StatusCode.ERROR, "undecided"))
