"""SchedulerService: requests parsed, use cases called, answers written."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer
from reveille_runtime.paging import page_token, read_page
from reveille_runtime.validation import Violations
from reveille_scheduler.rpc import convert
from reveille_scheduler.usecases.executions import Executions
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.preview import Preview
from reveille_scheduler.usecases.scopes import Scopes

MOST_SCOPES = 200
MOST_PREVIEWED = 100
DEFAULT_PREVIEWED = 5


class SchedulerServicer(SchedulerServiceServicer):
    """Serves the scheduler's own API."""

    def __init__(
        self, jobs: Jobs, scopes: Scopes, executions: Executions, preview: Preview
    ) -> None:
        self._jobs = jobs
        self._scopes = scopes
        self._executions = executions
        self._preview = preview

    async def RegisterJob(
        self, request: pb.RegisterJobRequest, context: Any
    ) -> pb.RegisterJobResponse:
        """Store a job."""
        found = Violations()
        job = convert.read_job(found, request.job)
        found.check()
        return pb.RegisterJobResponse(job=convert.write_job(await self._jobs.register(job)))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        """List jobs by name."""
        query = ("ListJobs",)
        page = read_page(request.page_size, request.page_token, query)
        after = None if page.after is None else str(page.after[0])
        rows = await self._jobs.page(after, page.limit)
        shown = rows[: page.size]
        return pb.ListJobsResponse(
            jobs=[convert.write_job(each) for each in shown],
            next_page_token=(
                page_token((shown[-1].job.name,), query) if len(rows) > page.size else ""
            ),
        )

    async def UpsertScopes(
        self, request: pb.UpsertScopesRequest, context: Any
    ) -> pb.UpsertScopesResponse:
        """Store wishes."""
        found = Violations()
        found.integer("scopes", len(request.scopes), minimum=0, maximum=MOST_SCOPES)
        wishes = [
            convert.read_scope(found, index, each) for index, each in enumerate(request.scopes)
        ]
        found.check()
        stored = await self._scopes.put(wishes)
        return pb.UpsertScopesResponse(scopes=[convert.write_scope(each) for each in stored])

    async def DeleteScopes(
        self, request: pb.DeleteScopesRequest, context: Any
    ) -> pb.DeleteScopesResponse:
        """Leave tombstones."""
        found = Violations()
        found.integer("scopes", len(request.scopes), minimum=0, maximum=MOST_SCOPES)
        deletions = [
            convert.read_deletion(found, index, each) for index, each in enumerate(request.scopes)
        ]
        found.check()
        await self._scopes.delete(deletions)
        return pb.DeleteScopesResponse()

    async def ListScopes(
        self, request: pb.ListScopesRequest, context: Any
    ) -> pb.ListScopesResponse:
        """List a job's scopes."""
        found = Violations()
        job_name = found.text("job_name", request.job_name, minimum=1, maximum=100)
        found.check()
        query = ("ListScopes", job_name)
        page = read_page(request.page_size, request.page_token, query)
        after = None if page.after is None else (str(page.after[0]), str(page.after[1]))
        rows = await self._scopes.page(job_name, after, page.limit)
        shown = rows[: page.size]
        return pb.ListScopesResponse(
            scopes=[convert.write_scope(each) for each in shown],
            next_page_token=(
                page_token((shown[-1].kind, shown[-1].id), query) if len(rows) > page.size else ""
            ),
        )

    async def PreviewSchedule(
        self, request: pb.PreviewScheduleRequest, context: Any
    ) -> pb.PreviewScheduleResponse:
        """Look ahead on a schedule."""
        found = Violations()
        count = found.integer(
            "count", request.count or DEFAULT_PREVIEWED, minimum=1, maximum=MOST_PREVIEWED
        )
        after = convert.read_moment(
            found, "after", request.after if request.HasField("after") else None
        )
        found.check()
        instants = await self._preview(request.cron, request.time_zone, after, count)
        answer = pb.PreviewScheduleResponse()
        for instant in instants:
            answer.next.add().FromDatetime(instant)
        return answer

    async def ListExecutions(
        self, request: pb.ListExecutionsRequest, context: Any
    ) -> pb.ListExecutionsResponse:
        """List occurrences, newest planned first."""
        found = Violations()
        states = [
            found.enum(f"states[{index}]", value, convert.STATES)
            for index, value in enumerate(request.states)
        ]
        found.check()
        query = ("ListExecutions", request.job_name, request.scope_id, ",".join(sorted(states)))
        page = read_page(request.page_size, request.page_token, query)
        before = None
        if page.after is not None:
            before = (datetime.fromisoformat(str(page.after[0])), UUID(str(page.after[1])))
        rows = await self._executions.page(
            request.job_name or None, request.scope_id or None, states, before, page.limit
        )
        shown = rows[: page.size]
        return pb.ListExecutionsResponse(
            executions=[convert.write_execution(each) for each in shown],
            next_page_token=(
                page_token((shown[-1].plan_time, shown[-1].id), query)
                if len(rows) > page.size
                else ""
            ),
        )

    async def GetExecution(
        self, request: pb.GetExecutionRequest, context: Any
    ) -> pb.GetExecutionResponse:
        """Read one occurrence."""
        found = Violations()
        execution_id = found.uuid("execution_id", request.execution_id)
        found.check()
        execution = await self._executions.get(execution_id)
        return pb.GetExecutionResponse(execution=convert.write_execution(execution))
