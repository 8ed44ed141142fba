"""The scheduler's API over a real socket: who may call, what is refused, how pages go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.scheduler.conftest import Replica, start_at

from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.explain.v1.explain_service_pb2_grpc import (
    ExplainServiceStub,
)
from reveille.scheduler.v1 import execution_pb2, job_pb2
from reveille.scheduler.v1 import scheduler_service_pb2 as pb
from reveille.scheduler.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceStub,
)
from reveille_runtime.errors import DomainError, InvalidArgument, NotFound, PermissionDenied
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.rpc import RpcRig

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


def job(name: str = "tidy") -> job_pb2.Job:
    return job_pb2.Job(
        name=name,
        handler="owner",
        catch_up_window=Duration(seconds=86_400),
        max_lateness=Duration(seconds=300),
        run_timeout=Duration(seconds=120),
        stale_timeout=Duration(seconds=300),
        heartbeat_interval=Duration(seconds=30),
        max_attempts=3,
        retry_backoff=[Duration(seconds=60)],
        retry_deadline=Duration(seconds=3600),
    )


def scope(scope_id: str = "nightly", cron: str = "0 12 * * *", zone: str = "UTC") -> job_pb2.Scope:
    return job_pb2.Scope(
        job_name="tidy",
        kind="folder",
        id=scope_id,
        cron=cron,
        time_zone=zone,
        enabled=True,
        revision=1,
        effective_from=stamp(NOON - timedelta(days=1)),
    )


def stamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


async def test_a_job_registered_twice_is_one_job(stub: SchedulerServiceAsyncStub) -> None:
    first = await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    again = await stub.RegisterJob(pb.RegisterJobRequest(job=job()))

    listed = await stub.ListJobs(pb.ListJobsRequest())
    assert [each.name for each in listed.jobs] == ["tidy"]
    assert again.job.create_time == first.job.create_time


async def test_a_broken_job_is_refused_with_every_violation(
    stub: SchedulerServiceAsyncStub,
) -> None:
    broken = job()
    broken.handler = "nobody"
    broken.max_attempts = 0
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.RegisterJob(pb.RegisterJobRequest(job=broken))

    assert refused.value.reason == "INVALID_FIELD"
    assert [each.field for each in refused.value.violations] == ["job.handler", "job.max_attempts"]


@pytest.mark.parametrize(
    ("wanted", "reason", "field"),
    [
        (scope(cron="61 * * * *"), "INVALID_CRON", "scopes[1].cron"),
        (scope(cron=""), "INVALID_CRON", "scopes[1].cron"),
        (scope(zone="Mars/Olympus"), "INVALID_TIMEZONE", "scopes[1].time_zone"),
    ],
)
async def test_a_rule_that_cannot_be_evaluated_is_refused_and_nothing_is_stored(
    stub: SchedulerServiceAsyncStub, wanted: job_pb2.Scope, reason: str, field: str
) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope("good"), wanted]))

    assert refused.value.reason == reason
    assert [each.field for each in refused.value.violations] == [field]
    assert not (await stub.ListScopes(pb.ListScopesRequest(job_name="tidy"))).scopes


async def test_a_scope_of_an_unknown_job_is_not_found(stub: SchedulerServiceAsyncStub) -> None:
    with pytest.raises(NotFound, match="tidy"), as_domain_errors():
        await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope()]))


async def test_pages_of_scopes_go_on_where_they_stopped(stub: SchedulerServiceAsyncStub) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    names = [f"scope-{n}" for n in range(5)]
    await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope(name) for name in names]))
    seen: list[str] = []
    token = ""
    while True:
        page = await stub.ListScopes(
            pb.ListScopesRequest(job_name="tidy", page_size=2, page_token=token)
        )
        seen += [each.id for each in page.scopes]
        if not (token := page.next_page_token):
            break

    assert seen == names


async def test_preview_answers_as_the_executor_evaluates(stub: SchedulerServiceAsyncStub) -> None:
    answer = await stub.PreviewSchedule(
        pb.PreviewScheduleRequest(
            cron="30 2 * * *",
            time_zone="America/New_York",
            after=stamp(datetime(2026, 3, 7, 12, tzinfo=UTC)),
            count=2,
        )
    )

    assert [each.ToDatetime(tzinfo=UTC) for each in answer.next] == [
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 3, 9, 6, 30, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.PreviewScheduleRequest(cron="nonsense"), "INVALID_CRON"),
        (pb.PreviewScheduleRequest(cron="* * * * *", time_zone="Local"), "INVALID_TIMEZONE"),
        (pb.PreviewScheduleRequest(cron="* * * * *", count=101), "OUT_OF_BOUNDS"),
    ],
)
async def test_preview_refuses_with_a_reason(
    stub: SchedulerServiceAsyncStub, request_: pb.PreviewScheduleRequest, reason: str
) -> None:
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.PreviewSchedule(request_)

    assert refused.value.reason == reason


async def test_users_may_preview_and_nothing_else(api: RpcRig) -> None:
    stub = SchedulerServiceStub(api.channel(api.keys.user("ada")))
    await stub.PreviewSchedule(pb.PreviewScheduleRequest(cron="@daily"))
    for call in (
        stub.RegisterJob(pb.RegisterJobRequest(job=job())),
        stub.ListExecutions(pb.ListExecutionsRequest()),
    ):
        with pytest.raises(PermissionDenied), as_domain_errors():
            await call


async def test_an_unknown_execution_is_not_found(stub: SchedulerServiceAsyncStub) -> None:
    with pytest.raises(NotFound), as_domain_errors():
        await stub.GetExecution(
            pb.GetExecutionRequest(execution_id="01890000-0000-7000-8000-000000000000")
        )
    with pytest.raises(DomainError) as refused, as_domain_errors():
        await stub.GetExecution(pb.GetExecutionRequest(execution_id="not an id"))
    assert isinstance(refused.value, InvalidArgument)


async def test_the_ledger_is_listed_newest_first_and_explained(
    api: RpcRig, stub: SchedulerServiceAsyncStub, replica: Replica
) -> None:
    await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope()]))
    for day in range(3):
        await start_at(replica, NOON + timedelta(days=day, seconds=1))
        await replica.run()

    first = await stub.ListExecutions(pb.ListExecutionsRequest(scope_id="nightly", page_size=2))
    rest = await stub.ListExecutions(
        pb.ListExecutionsRequest(scope_id="nightly", page_size=2, page_token=first.next_page_token)
    )
    plans = [
        each.plan_time.ToDatetime(tzinfo=UTC) for each in [*first.executions, *rest.executions]
    ]
    assert plans == [NOON + timedelta(days=day) for day in (2, 1, 0)]
    assert first.executions[0].state == execution_pb2.EXECUTION_STATE_SUCCESS
    assert len(first.executions[0].trace_id) == 32

    explain = ExplainServiceStub(api.channel(api.keys.user("op", operator=True)))
    told = await explain.Explain(explain_pb.ExplainRequest(id="nightly"))
    states = [each.state for each in told.findings]
    assert states.count("fired") == 3
    assert len(states) == 4
    by_key = await explain.Explain(
        explain_pb.ExplainRequest(id="schedule:nightly:2030-06-02T12:00:00Z")
    )
    assert [each.state for each in by_key.findings] == ["fired"]
    by_id = await explain.Explain(explain_pb.ExplainRequest(id=first.executions[0].execution_id))
    assert by_id.findings[0].rows[0].table == "scheduler.executions"
    assert not (await explain.Explain(explain_pb.ExplainRequest(id="nobody"))).findings
