"""RunService."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from reveille.heartbeat.v1 import run_pb2 as pb
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceServicer
from reveille_heartbeat.domain.tail import Position
from reveille_heartbeat.rpc import parse, parse_issues, show
from reveille_heartbeat.rpc.pages import page_of
from reveille_heartbeat.usecases.reading import Reader
from reveille_heartbeat.usecases.runs.cancel_run import CancelRun
from reveille_heartbeat.usecases.runs.retry_run import RetryRun
from reveille_heartbeat.usecases.runs.run_log import RunLog
from reveille_heartbeat.usecases.runs.watch_run import WatchRuns
from reveille_runtime.access import current_actor
from reveille_runtime.paging import read_page
from reveille_runtime.reasons import reason_value
from reveille_runtime.validation import Violations

_DEFAULT_LIMIT = 64 << 10
_MAX_LIMIT = 1 << 20
_MAX_OFFSET = (1 << 63) - 1
_MAX_EVENT = (1 << 31) - 1


class RunServicer(RunServiceServicer):
    """Serves attempts."""

    def __init__(
        self,
        reader: Reader,
        log: RunLog,
        watch: WatchRuns,
        cancel: CancelRun,
        retry: RetryRun,
    ) -> None:
        self._reader = reader
        self._log = log
        self._watch = watch
        self._cancel = cancel
        self._retry = retry

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        """Read an attempt."""
        run_id = parse.one_id("run_id", request.run_id)
        run = await self._reader.run(current_actor(), run_id)
        costs = await self._reader.costs([run_id])
        return pb.GetRunResponse(run=show.run(run, costs.get(run_id)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        """List a workspace's attempts, newest first."""
        found = Violations()
        workspace_id = found.uuid("workspace_id", request.workspace_id)
        agent_id = found.optional_uuid("agent_id", request.agent_id)
        wakeup_id = found.optional_uuid("wakeup_id", request.wakeup_id)
        issue = parse_issues.optional_ref(found, "issue_id", request.issue_id)
        states = parse.states(found, "states", request.states, show.RUN_STATES)
        found.check()
        query = ("ListRuns", workspace_id, agent_id, wakeup_id, issue, *sorted(states))
        page = read_page(request.page_size, request.page_token, query)
        listed = await self._reader.runs(
            current_actor(), workspace_id, agent_id, wakeup_id, issue, states, page
        )
        costs = await self._reader.costs([each.run_id for each in listed.rows])
        runs, token = page_of(
            listed,
            lambda each: show.run(each, costs.get(each.run_id)),
            lambda each: each.run_id,
            query,
        )
        return pb.ListRunsResponse(runs=runs, next_page_token=token)

    async def ReadRunLog(
        self, request: pb.ReadRunLogRequest, context: Any
    ) -> pb.ReadRunLogResponse:
        """Read output from a byte offset on."""
        found = Violations()
        run_id = found.uuid("run_id", request.run_id)
        stream = found.enum("stream", request.stream or pb.LOG_STREAM_STDOUT, show.LOG_STREAMS)
        offset = found.integer("offset", request.offset, minimum=0, maximum=_MAX_OFFSET)
        limit = found.integer(
            "limit", request.limit or _DEFAULT_LIMIT, minimum=1, maximum=_MAX_LIMIT
        )
        found.check()
        part = await self._log.read(current_actor(), run_id, stream, offset, limit)
        return pb.ReadRunLogResponse(
            chunk=part.data, next_offset=part.next_offset, complete=part.complete
        )

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        """Cancel an attempt and its wakeup."""
        run_id = parse.one_id("run_id", request.run_id)
        return pb.CancelRunResponse(run=show.run(await self._cancel(current_actor(), run_id)))

    async def RetryRun(self, request: pb.RetryRunRequest, context: Any) -> pb.RetryRunResponse:
        """Start a waiting repeat now, or ask for the work once more."""
        actor = current_actor()
        run_id = parse.one_id("run_id", request.run_id)
        repeatable = parse.repeatable(actor, "RetryRun", request, request.request_id)
        retried = await self._retry(actor, run_id, repeatable)
        run = None
        if retried.run_id is not None:
            run = show.run(await self._reader.run(actor, retried.run_id))
        return pb.RetryRunResponse(
            outcome=pb.RetryOutcome.Value(f"RETRY_OUTCOME_{retried.outcome.name}"),
            run=run,
            wakeup_id=str(retried.wakeup_id),
            reason=reason_value(retried.reason),
            message=retried.message,
        )

    async def WatchRun(
        self, request: pb.WatchRunRequest, context: Any
    ) -> AsyncIterator[pb.WatchRunResponse]:
        """Follow an attempt to its end."""
        found = Violations()
        run_id = found.uuid("run_id", request.run_id)
        position = Position(
            found.integer("after_event", request.after_event, minimum=0, maximum=_MAX_EVENT),
            found.integer("stdout_offset", request.stdout_offset, minimum=0, maximum=_MAX_OFFSET),
            found.integer("stderr_offset", request.stderr_offset, minimum=0, maximum=_MAX_OFFSET),
        )
        found.check()
        news = self._watch(current_actor(), run_id, position, output=not request.without_log)
        async with contextlib.aclosing(news) as told:
            async for each in told:
                yield show.news(each)
