"""SchedulerService: requests parsed, use cases called, answers written."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceServicer
from reveille_runtime.access import current_actor
from reveille_runtime.paging import page_token, read_page
from reveille_runtime.validation import Violations
from reveille_scheduler.domain.job import LONGEST_NOTE
from reveille_scheduler.rpc import convert
from reveille_scheduler.usecases.asking import Asking
from reveille_scheduler.usecases.executions import Executions, Filter
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.preview import Place, Preview
from reveille_scheduler.usecases.scopes import Scopes

MOST_SCOPES = 200
MOST_PREVIEWED = 100
DEFAULT_PREVIEWED = 5


class SchedulerServicer(SchedulerServiceServicer):
    """Serves the scheduler's own API."""

    def __init__(
        self,
        jobs: Jobs,
        scopes: Scopes,
        executions: Executions,
        preview: Preview,
        asking: Asking,
    ) -> None:
        self._jobs = jobs
        self._scopes = scopes
        self._executions = executions
        self._preview = preview
        self._asking = asking

    async def RegisterJob(
        self, request: pb.RegisterJobRequest, context: Any
    ) -> pb.RegisterJobResponse:
        """Store a job."""
        found = Violations()
        job = convert.read_job(found, request.job)
        # What cannot be read and what breaks an invariant are told together.
        for problem in self._jobs.problems(job):
            found.add(f"job.{problem.field}", problem.description)
        found.check()
        return pb.RegisterJobResponse(job=convert.write_job(await self._jobs.register(job)))

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.GetJobResponse:
        """Read a job."""
        return pb.GetJobResponse(job=convert.write_job(await self._jobs.get(_name(request.name))))

    async def PauseJob(self, request: pb.PauseJobRequest, context: Any) -> pb.PauseJobResponse:
        """Stop a job's planning and retries."""
        found = Violations()
        name = found.text("name", request.name, minimum=1, maximum=100)
        note = found.text("note", request.note, minimum=1, maximum=LONGEST_NOTE)
        found.check()
        return pb.PauseJobResponse(job=convert.write_job(await self._jobs.pause(name, note)))

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.ResumeJobResponse:
        """End a job's pause."""
        job = await self._jobs.resume(_name(request.name))
        return pb.ResumeJobResponse(job=convert.write_job(job))

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
        rule = convert.read_rule(found, "", request)
        place = None
        if request.job_name:
            # Whose scope it is, is not for every user to know.
            current_actor().require_operator()
            place = Place(
                found.text("job_name", request.job_name, minimum=1, maximum=100),
                found.text("kind", request.kind, minimum=1, maximum=100),
                found.text("scope_id", request.scope_id, minimum=1, maximum=200),
            )
        found.check()
        outlook = await self._preview(rule, place, after, count)
        answer = pb.PreviewScheduleResponse(cron=outlook.cron, time_zone=outlook.time_zone)
        for planned, due in outlook.times:
            answer.next.add().FromDatetime(planned)
            answer.due.add().FromDatetime(due)
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
        since = convert.read_moment(
            found,
            "plan_time_from",
            request.plan_time_from if request.HasField("plan_time_from") else None,
        )
        until = convert.read_moment(
            found,
            "plan_time_before",
            request.plan_time_before if request.HasField("plan_time_before") else None,
        )
        found.check()
        wanted = Filter(
            request.job_name or None, request.scope_id or None, tuple(sorted(states)), since, until
        )
        query = (
            "ListExecutions",
            request.job_name,
            request.scope_id,
            ",".join(sorted(states)),
            since,
            until,
        )
        page = read_page(request.page_size, request.page_token, query)
        after = None
        if page.after is not None:
            after = (datetime.fromisoformat(str(page.after[0])), UUID(str(page.after[1])))
        rows = await self._executions.page(wanted, after, page.limit)
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

    async def RetryExecution(
        self, request: pb.RetryExecutionRequest, context: Any
    ) -> pb.RetryExecutionResponse:
        """Give a final failure new attempts."""
        found = Violations()
        execution_id = found.uuid("execution_id", request.execution_id)
        found.check()
        return await self._asking.retry(
            current_actor().principal, request, execution_id, convert.write_execution
        )

    async def BackfillScope(
        self, request: pb.BackfillScopeRequest, context: Any
    ) -> pb.BackfillScopeResponse:
        """Execute what a scope missed."""
        found = Violations()
        key = (
            found.text("job_name", request.job_name, minimum=1, maximum=100),
            found.text("kind", request.kind, minimum=1, maximum=100),
            found.text("scope_id", request.scope_id, minimum=1, maximum=200),
        )
        for field in ("start_time", "end_time"):
            if not request.HasField(field):
                found.add(field, "is required", "FIELD_REQUIRED")
        start = found.timestamp("start_time", request.start_time)
        end = found.timestamp("end_time", request.end_time)
        found.check()
        return await self._asking.backfill(current_actor().principal, request, key, start, end)


def _name(text: str) -> str:
    found = Violations()
    name = found.text("name", text, minimum=1, maximum=100)
    found.check()
    return name
