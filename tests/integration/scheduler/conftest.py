"""A scheduler's parts on a real database, with a real handler behind a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from reveille.explain.v1.explain_service_pb2_grpc import add_ExplainServiceServicer_to_server
from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille.scheduler.v1.job_handler_service_pb2_grpc import (
    JobHandlerServiceServicer,
    JobHandlerServiceStub,
    add_JobHandlerServiceServicer_to_server,
)
from reveille.scheduler.v1.scheduler_service_pb2_grpc import (
    SchedulerServiceStub,
    add_SchedulerServiceServicer_to_server,
)
from reveille_runtime.batcher import Batcher
from reveille_runtime.db import Database
from reveille_runtime.explain import ExplainServicer
from reveille_runtime.lease import ExpiryWitness, LeaseKeeper
from reveille_scheduler.domain.calendar import Calendar
from reveille_scheduler.domain.job import CatchUp, Job
from reveille_scheduler.domain.occurrence import Claim, Execution
from reveille_scheduler.domain.planning import DueScope, Planner
from reveille_scheduler.domain.rule import CronRule, Rule
from reveille_scheduler.domain.scope import ScopeWish
from reveille_scheduler.rpc.servicer import SchedulerServicer
from reveille_scheduler.store.ledger import Filter
from reveille_scheduler.usecases.asking import Asking
from reveille_scheduler.usecases.backfill import BackfillScope
from reveille_scheduler.usecases.claim_retries import ClaimRetries
from reveille_scheduler.usecases.due_jobs import DueJobs
from reveille_scheduler.usecases.executions import Executions
from reveille_scheduler.usecases.explain import Explain
from reveille_scheduler.usecases.hand_over import Handler, HandOver
from reveille_scheduler.usecases.jobs import Jobs
from reveille_scheduler.usecases.plan_due import PlanDue
from reveille_scheduler.usecases.plan_hooks import PlanHooks
from reveille_scheduler.usecases.preview import Preview
from reveille_scheduler.usecases.renew import Renew
from reveille_scheduler.usecases.scopes import Scopes
from reveille_scheduler.usecases.settle import Ended, Settle
from reveille_scheduler.usecases.take_over import TakeOver
from reveille_scheduler.usecases.trace import Tracing
from reveille_scheduler.workers.executor import Executor
from reveille_testkit.database import TestDatabase
from reveille_testkit.rpc import Keyring, RpcRig, SpanLog, serving

if TYPE_CHECKING:
    from reveille.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub

JOB = Job(
    name="tidy",
    handler="owner",
    catch_up_window=timedelta(days=1),
    max_lateness=timedelta(minutes=5),
    run_timeout=timedelta(minutes=2),
    stale_timeout=timedelta(minutes=5),
    heartbeat_interval=timedelta(seconds=30),
    max_attempts=3,
    retry_backoff=(timedelta(minutes=1), timedelta(minutes=5)),
    retry_deadline=timedelta(hours=1),
)


@dataclass
class Owner(JobHandlerServiceServicer):
    """A job owner that answers as the test says and remembers what it was asked."""

    answer: Callable[[pb.Plan], pb.PlanResult]
    plans: list[pb.Plan] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    plan: Callable[[pb.HookScope], pb.ScopePlan | None] = lambda _: None
    questions: list[pb.HookScope] = field(default_factory=list)
    hook: Callable[[pb.PlanScopesRequest, Any], Awaitable[None]] | None = None
    override: Callable[[pb.RunPlansRequest, Any], Awaitable[pb.RunPlansResponse]] | None = None

    async def RunPlans(self, request: pb.RunPlansRequest, context: Any) -> pb.RunPlansResponse:
        self.plans.extend(request.plans)
        self.called.set()
        if self.override is not None:
            return await self.override(request, context)
        await self.may_answer.wait()
        return pb.RunPlansResponse(results=[self.answer(plan) for plan in request.plans])

    async def PlanScopes(
        self, request: pb.PlanScopesRequest, context: Any
    ) -> pb.PlanScopesResponse:
        self.questions.extend(request.scopes)
        if self.hook is not None:
            await self.hook(request, context)
        plans = [self.plan(scope) for scope in request.scopes]
        return pb.PlanScopesResponse(plans=[plan for plan in plans if plan is not None])


def succeeded(plan: pb.Plan) -> pb.PlanResult:
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_SUCCESS,
        result=b'{"run_id":"of ' + plan.scope_id.encode() + b'"}',
    )


def failed(plan: pb.Plan) -> pb.PlanResult:
    return pb.PlanResult(
        execution_id=plan.execution_id,
        outcome=pb.PLAN_OUTCOME_FAILED,
        error_code="disk_full",
        error_message="no space",
    )


class Replica:
    """One replica's use cases, driven step by step; its monotonic clock is the test's."""

    def __init__(self, database: Database, rig: RpcRig, name: str = "replica") -> None:
        self.database = database
        self.elapsed = 0.0
        self.tracing = Tracing(rig.telemetry)
        self.keeper = LeaseKeeper(
            Renew(database), duration=300.0, interval=10.0, monotonic=self.clock
        )
        self.witness = ExpiryWitness(10.0, monotonic=self.clock)
        stub = JobHandlerServiceStub(rig.channel(rig.keys.service("scheduler")))
        self.handler = Handler("owner", stub)
        self.settle: Batcher[Ended, bool] = Batcher("settle", Settle(database, self.tracing))
        self.hand_over = HandOver({"owner": self.handler}, self.settle, self.keeper, self.tracing)
        self.executor = Executor(self.hand_over, capacity=1000, grace=0.0)
        self.due_jobs = DueJobs(database)
        self.plan_due = PlanDue(database, name, self.clock)
        self.claim_retries = ClaimRetries(database, self.tracing, name, self.clock)
        self.plan_hooks = PlanHooks(database, {"owner": self.handler}, name, self.clock)
        self.take_over = TakeOver(database, self.keeper, self.witness, self.tracing, 100)
        self.jobs = Jobs(database, {"owner"}, timedelta(seconds=10))
        self.scopes = Scopes(database)
        self.executions = Executions(database)

    def clock(self) -> float:
        """Read the monotonic clock of this replica."""
        return self.elapsed

    async def plan(self) -> list[Claim]:
        """Claim what is due, for the first time or again, of every job: one tick."""
        claims: list[Claim] = []
        for job in await self.due_jobs():
            claims += (await self.claim_retries(job.name, 200)).claims
            claims += (await self.plan_due(job.name, 200)).claims
            if (asked := await self.plan_hooks.take(job.name, 200)) is not None:
                await self.plan_hooks.ask(asked, claims.extend)
        return claims

    async def run(self) -> None:
        """Claim what is due and execute it to its end."""
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for claim in await self.plan():
                group.create_task(self.hand_over(claim))

    async def ledger(self) -> list[Execution]:
        """Read all occurrences, newest planned first."""
        return await self.executions.page(Filter(), None, 500)

    async def one(self) -> Execution:
        """Read the only occurrence."""
        (found,) = await self.ledger()
        return found

    async def look_for_the_dead(self) -> None:
        """Look for expired leases as the loop would: twice, an interval apart, while renewing."""
        for _ in range(2):
            await self.keeper.tick()
            await self.take_over()
            self.elapsed += 10.0


@pytest.fixture
def owner() -> Owner:
    made = Owner(succeeded)
    made.may_answer.set()
    return made


@pytest_asyncio.fixture
async def rig(tmp_path: Path, owner: Owner) -> AsyncIterator[RpcRig]:
    rig = RpcRig(Keyring(tmp_path / "keys"))
    rig.server.add(add_JobHandlerServiceServicer_to_server, owner)
    async with serving(rig):
        yield rig


@pytest_asyncio.fixture
async def replica(database: TestDatabase, rig: RpcRig) -> Replica:
    made = Replica(await database.open("scheduler"), rig)
    await made.jobs.register(JOB)
    return made


@pytest_asyncio.fixture
async def api(tmp_path: Path, database: TestDatabase) -> AsyncIterator[RpcRig]:
    opened = await database.open("scheduler")
    rig = RpcRig(Keyring(tmp_path / "api-keys"))
    rig.server.add(
        add_SchedulerServiceServicer_to_server,
        SchedulerServicer(
            Jobs(opened, {"owner"}, timedelta(seconds=10)),
            Scopes(opened),
            Executions(opened),
            Preview(opened),
            Asking(opened, Executions(opened), BackfillScope(timedelta(days=90))),
        ),
    )
    rig.server.add(add_ExplainServiceServicer_to_server, ExplainServicer(Explain(opened)))
    async with serving(rig):
        yield rig


@pytest.fixture
def stub(api: RpcRig) -> SchedulerServiceAsyncStub:
    return SchedulerServiceStub(api.channel(api.keys.service("autopilot")))


@pytest.fixture
def spans(rig: RpcRig) -> SpanLog:
    return rig.spans


def break_rule(monkeypatch: pytest.MonkeyPatch, cron: str) -> None:
    """Make the planning of scopes with one expression fail as no rule should."""
    sound = Planner.calendar

    def calendar(planner: Planner, scope: DueScope) -> Calendar:
        if isinstance(scope.rule, CronRule) and scope.rule.cron == cron:
            raise OverflowError("date value out of range")
        return sound(planner, scope)

    monkeypatch.setattr(Planner, "calendar", calendar)


async def start_at(replica: Replica, moment: datetime) -> None:
    """Move the database's clock, as the replica sees it, to a moment (plus what the test takes)."""
    replica.database.move_clock((moment - await replica.database.now()).total_seconds())


def wish(
    scope_id: str = "nightly",
    cron: str = "0 12 * * *",
    *,
    revision: int = 1,
    enabled: bool = True,
    since: datetime | None = datetime(2030, 6, 1, tzinfo=UTC),
    zone: str = "UTC",
    rule: Rule | None = None,
    job_name: str = "tidy",
    catch_up: CatchUp | None = None,
    max_lateness: timedelta | None = None,
) -> ScopeWish:
    return ScopeWish(
        job_name,
        "folder",
        scope_id,
        rule or CronRule(cron, zone),
        enabled,
        revision,
        since,
        catch_up,
        max_lateness,
    )
