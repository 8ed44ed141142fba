"""The scheduler's API over a real socket: who may call, what is refused, how pages go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.scheduler.conftest import (
    Owner,
    Replica,
    failed,
    start_at,
    succeeded,
    wish,
)

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
from reveille_testkit.database import TestDatabase
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
    broken.catch_up = 99  # type: ignore[assignment]  # a value of a newer release
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.RegisterJob(pb.RegisterJobRequest(job=broken))

    assert [each.field for each in refused.value.violations] == [
        "job.catch_up",
        "job.handler",
        "job.max_attempts",
    ]


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


@pytest.mark.parametrize(
    "moment",
    [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    ids=["first", "last"],
)
@pytest.mark.parametrize("field", ["run_at", "effective_from"])
async def test_an_instant_that_stands_for_infinity_is_refused(
    stub: SchedulerServiceAsyncStub, field: str, moment: datetime
) -> None:
    """The database would give it back as something that no time can be compared with."""
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    wanted = scope()
    if field == "run_at":
        wanted.ClearField("cron")
    getattr(wanted, field).FromDatetime(moment)
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[wanted]))
    assert [each.field for each in refused.value.violations] == [f"scopes[0].{field}"]

    # What lies beside it is a time like any other.
    beside = timedelta(microseconds=1 if moment.year == 1 else -1)
    getattr(wanted, field).FromDatetime(moment + beside)
    await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[wanted]))
    (stored,) = (await stub.ListScopes(pb.ListScopesRequest(job_name="tidy"))).scopes
    assert getattr(stored, field).ToDatetime(tzinfo=UTC) == moment + beside


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
        stub.GetJob(pb.GetJobRequest(name="tidy")),
        stub.PauseJob(pb.PauseJobRequest(name="tidy", note="no")),
        stub.ResumeJob(pb.ResumeJobRequest(name="tidy")),
        stub.RetryExecution(pb.RetryExecutionRequest()),
        stub.BackfillScope(pb.BackfillScopeRequest()),
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


async def test_executions_are_filtered_by_job_scope_state_and_time(
    api: RpcRig, stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner
) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job("other")))
    other = scope("b")
    other.job_name = "other"
    await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope("a"), other]))
    for day in range(3):
        owner.answer = failed if day == 1 else succeeded
        await start_at(replica, NOON + timedelta(days=day, seconds=1))
        await replica.run()

    async def listed(**filters: Any) -> list[tuple[str, int]]:
        page = await stub.ListExecutions(pb.ListExecutionsRequest(**filters))
        return [(each.scope_id, each.plan_time.ToDatetime().day) for each in page.executions]

    assert len(await listed()) == 6
    assert await listed(job_name="other") == [("b", 3), ("b", 2), ("b", 1)]
    assert await listed(scope_id="a", job_name="other") == []
    assert await listed(scope_id="a", states=[execution_pb2.EXECUTION_STATE_SUCCESS]) == [
        ("a", 3),
        ("a", 1),
    ]
    both = await listed(states=[execution_pb2.EXECUTION_STATE_FAILED])
    assert sorted(both) == [("a", 2), ("b", 2)]
    assert await listed(states=[execution_pb2.EXECUTION_STATE_FAILED], job_name="other") == [
        ("b", 2)
    ]
    one = timedelta(days=1)
    within = {"plan_time_from": stamp(NOON + one), "plan_time_before": stamp(NOON + 2 * one)}
    narrower: list[dict[str, Any]] = [{}, {"job_name": "tidy"}, {"scope_id": "a"}]
    for filters in narrower:
        assert {each[1] for each in await listed(**within, **filters)} == {2}


async def test_a_page_token_belongs_to_its_filters(stub: SchedulerServiceAsyncStub) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job("one")))
    await stub.RegisterJob(pb.RegisterJobRequest(job=job("two")))
    token = (await stub.ListJobs(pb.ListJobsRequest(page_size=1))).next_page_token
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await stub.ListExecutions(pb.ListExecutionsRequest(page_token=token))
    assert refused.value.reason == "INVALID_PAGE_TOKEN"


async def test_preview_shows_when_a_stored_scope_is_really_handed_over(
    stub: SchedulerServiceAsyncStub, replica: Replica, owner: Owner
) -> None:
    """Rule, zone, delay and this scope's share of the jitter: then it happens like that."""
    spread = job()
    spread.schedule_delay.FromTimedelta(timedelta(minutes=30))
    spread.jitter.FromTimedelta(timedelta(minutes=20))
    await stub.RegisterJob(pb.RegisterJobRequest(job=spread))
    stored = (await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope()]))).scopes[0]
    outlook = await stub.PreviewSchedule(
        pb.PreviewScheduleRequest(
            job_name="tidy",
            kind="folder",
            scope_id="nightly",
            after=stamp(NOON - timedelta(hours=1)),
            count=2,
        )
    )
    due = outlook.due[0].ToDatetime(tzinfo=UTC)

    assert (outlook.cron, outlook.time_zone) == ("0 12 * * *", "UTC")
    assert outlook.next[0].ToDatetime(tzinfo=UTC) == NOON
    assert NOON + timedelta(minutes=30) < due < NOON + timedelta(minutes=50)
    assert outlook.due[1].ToDatetime(tzinfo=UTC) != due + timedelta(days=1)
    assert stored.next_plan_time.ToDatetime(tzinfo=UTC) == due
    for moment, handed_over in ((due - timedelta(seconds=2), 0), (due + timedelta(seconds=1), 1)):
        await start_at(replica, moment)
        await replica.run()
        assert len(owner.plans) == handed_over


async def test_preview_takes_every_source(stub: SchedulerServiceAsyncStub) -> None:
    at = stamp(NOON)
    every = await stub.PreviewSchedule(
        pb.PreviewScheduleRequest(cadence=Duration(seconds=600), after=at, count=2)
    )
    once = await stub.PreviewSchedule(
        pb.PreviewScheduleRequest(run_at=stamp(NOON + timedelta(days=1)), after=at)
    )
    fired = await stub.PreviewSchedule(pb.PreviewScheduleRequest(run_at=at, after=at))

    assert [each.ToDatetime(tzinfo=UTC).minute for each in every.next] == [10, 20]
    assert [each.ToDatetime(tzinfo=UTC).day for each in once.next] == [2]
    assert list(fired.next) == []
    assert every.due == every.next


@pytest.mark.parametrize(
    "request_",
    [
        pb.PreviewScheduleRequest(cron="@daily", run_at=Timestamp(seconds=1)),
        pb.PreviewScheduleRequest(cadence=Duration(nanos=1)),
        pb.PreviewScheduleRequest(cadence=Duration(seconds=-60)),
        pb.PreviewScheduleRequest(),
    ],
)
async def test_preview_refuses_what_is_no_single_source(
    stub: SchedulerServiceAsyncStub, request_: pb.PreviewScheduleRequest
) -> None:
    with pytest.raises(InvalidArgument), as_domain_errors():
        await stub.PreviewSchedule(request_)


async def test_whose_scopes_there_are_is_not_for_users(
    api: RpcRig, stub: SchedulerServiceAsyncStub, replica: Replica
) -> None:
    await replica.scopes.put([wish()])
    request = pb.PreviewScheduleRequest(job_name="tidy", kind="folder", scope_id="nightly")
    user = SchedulerServiceStub(api.channel(api.keys.user("ada")))
    with pytest.raises(PermissionDenied) as refused, as_domain_errors():
        await user.PreviewSchedule(request)
    assert refused.value.reason == "OPERATOR_REQUIRED"
    assert (await stub.PreviewSchedule(request)).next
    for missing in ("job_name", "scope_id"):
        broken = pb.PreviewScheduleRequest()
        broken.CopyFrom(request)
        setattr(broken, missing, "nobody")
        with pytest.raises(NotFound), as_domain_errors():
            await stub.PreviewSchedule(broken)


async def test_a_scope_has_exactly_one_source(stub: SchedulerServiceAsyncStub) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    two, none, odd = scope("two"), scope("none", cron=""), scope("odd", cron="")
    two.hook = True
    odd.cadence.FromTimedelta(timedelta(milliseconds=1500))
    for bad, field in ((two, "hook"), (none, "cron"), (odd, "cadence")):
        with pytest.raises(InvalidArgument) as refused, as_domain_errors():
            await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[bad]))
        assert [each.field for each in refused.value.violations] == [f"scopes[0].{field}"]


async def test_a_rule_that_never_fires_is_refused(stub: SchedulerServiceAsyncStub) -> None:
    """No such date, and a zone that always skips the only hour."""
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    for bad in (
        scope(cron="0 0 30 2 *"),
        scope(cron="*/5 2 * 3 0#2", zone="America/New_York"),
    ):
        with pytest.raises(InvalidArgument) as refused, as_domain_errors():
            await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[bad]))
        assert refused.value.reason == "INVALID_CRON"


async def test_a_scope_is_stored_and_shown_whole(stub: SchedulerServiceAsyncStub) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    wanted = job_pb2.Scope(
        job_name="tidy",
        kind="folder",
        id="once",
        run_at=stamp(NOON + timedelta(days=9)),
        enabled=True,
        revision=7,
        effective_from=stamp(NOON),
        catch_up=job_pb2.CATCH_UP_EVERY_PLAN,
        max_lateness=Duration(),
    )
    (stored,) = (await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[wanted]))).scopes
    assert stored.next_plan_time == wanted.run_at
    stored.ClearField("next_plan_time")

    assert stored == wanted


async def test_of_two_words_on_a_scope_in_one_batch_the_newer_counts(
    stub: SchedulerServiceAsyncStub,
) -> None:
    await stub.RegisterJob(pb.RegisterJobRequest(job=job()))
    older, newer = scope(), scope(cron="0 1 * * *")
    newer.revision = 2
    stored = await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[newer, older]))

    assert [each.cron for each in stored.scopes] == ["0 1 * * *"] * 2


async def test_a_job_is_stored_and_shown_whole(stub: SchedulerServiceAsyncStub) -> None:
    wanted = job()
    wanted.catch_up = job_pb2.CATCH_UP_EVERY_PLAN
    wanted.max_plans_per_tick = 7
    wanted.plans_per_scope = 3
    wanted.allow_stale_reentry = False
    wanted.jitter.FromTimedelta(timedelta(seconds=30))
    wanted.schedule_delay.FromTimedelta(timedelta(minutes=5))
    stored = (await stub.RegisterJob(pb.RegisterJobRequest(job=wanted))).job
    for output_only in ("create_time", "update_time"):
        stored.ClearField(output_only)

    assert stored == wanted
    plain = (await stub.RegisterJob(pb.RegisterJobRequest(job=job("plain")))).job
    assert plain.allow_stale_reentry
    assert plain.plans_per_scope == 1
    assert plain.catch_up == job_pb2.CATCH_UP_LATEST_ONLY


async def test_why_tells_a_pause_a_late_start_and_what_would_change_it(
    api: RpcRig, stub: SchedulerServiceAsyncStub, database: TestDatabase, replica: Replica
) -> None:
    explain = ExplainServiceStub(api.channel(api.keys.user("op", operator=True)))

    async def told(what: str) -> dict[str, str]:
        answer = await explain.Explain(explain_pb.ExplainRequest(id=what))
        return {each.state: each.command for each in answer.findings}

    await stub.UpsertScopes(pb.UpsertScopesRequest(scopes=[scope()]))
    database.move_clock((NOON + timedelta(hours=1) - await replica.database.now()).total_seconds())
    assert set(await told("nightly")) == {"due_late"}
    await stub.PauseJob(pb.PauseJobRequest(name="tidy", note="moving"))
    assert await told("nightly") == {"paused": "reveille jobs resume tidy"}
    await stub.ResumeJob(pb.ResumeJobRequest(name="tidy"))
    await replica.run()
    late = await told("schedule:nightly:2030-06-01T12:00:00Z")
    assert late == {
        "skipped": "reveille scopes backfill tidy folder nightly"
        " --from 2030-06-01T12:00:00Z --to 2030-06-01T12:00:00Z"
    }
    await stub.BackfillScope(
        pb.BackfillScopeRequest(
            job_name="tidy",
            kind="folder",
            scope_id="nightly",
            start_time=stamp(NOON),
            end_time=stamp(NOON),
        )
    )
    assert set(await told("schedule:nightly:2030-06-01T12:00:00Z")) == {"waiting_for_backfill"}
