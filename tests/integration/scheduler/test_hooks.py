"""What an owner may answer when it is asked for plans, and that a scope is judged by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import grpc
import pytest
from google.protobuf import timestamp_pb2
from tests.integration.scheduler.conftest import JOB, Owner, Replica, start_at, wish

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_scheduler.domain.calendar import LAST
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.domain.states import ExecutionState
from reveille_scheduler.usecases.plan_hooks import KEPT_APART_SECONDS, PUT_ASIDE
from reveille_testkit.waiting import eventually

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
# The year 33658: a protocol buffer can carry it, no calendar can.
NEVER = timestamp_pb2.Timestamp(seconds=10**12)


def stamp(moment: datetime) -> timestamp_pb2.Timestamp:
    made = timestamp_pb2.Timestamp()
    made.FromDatetime(moment)
    return made


def planned(scope: pb.HookScope, moment: datetime = NOON) -> pb.ScopePlan:
    return pb.ScopePlan(kind=scope.kind, id=scope.id, plan_times=[stamp(moment)])


async def due(replica: Replica, *names: str) -> None:
    await replica.scopes.put([wish(name, rule=Hook()) for name in names])
    await start_at(replica, NOON + SECOND)


async def states(replica: Replica) -> dict[str, ExecutionState]:
    return {each.scope_id: each.state for each in await replica.ledger()}


@pytest.mark.parametrize("field", ["plan_times", "ask_again_time"])
async def test_a_plan_that_cannot_be_read_leaves_the_other_scopes_theirs(
    replica: Replica, owner: Owner, field: str
) -> None:
    def answer(scope: pb.HookScope) -> pb.ScopePlan:
        if scope.id != "bad":
            return planned(scope)
        if field == "plan_times":
            return pb.ScopePlan(kind=scope.kind, id=scope.id, plan_times=[NEVER])
        return pb.ScopePlan(kind=scope.kind, id=scope.id, ask_again_time=NEVER)

    owner.plan = answer
    await due(replica, "good", "bad", "fine")
    await replica.run()
    assert await states(replica) == {
        "good": ExecutionState.SUCCESS,
        "fine": ExecutionState.SUCCESS,
    }

    # It said nothing that counts, so it is asked again like one that said nothing.
    owner.plan = planned
    await start_at(replica, NOON + 2 * MINUTE)
    await replica.run()
    assert (await states(replica))["bad"] is ExecutionState.SUCCESS


async def test_an_owner_that_speaks_of_what_it_was_not_asked_is_not_heard(
    replica: Replica, owner: Owner
) -> None:
    """Not even a name that no database can store does any harm."""

    def answer(scope: pb.HookScope) -> pb.ScopePlan:
        return planned(scope if scope.id == "good" else pb.HookScope(kind="folder", id="\x00"))

    owner.plan = answer
    await due(replica, "good", "other")
    await replica.run()

    assert await states(replica) == {"good": ExecutionState.SUCCESS}


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED], ids=["bug", "hangs"]
)
async def test_a_scope_that_spoils_its_owners_answer_is_left_out_alone(
    replica: Replica, owner: Owner, code: grpc.StatusCode
) -> None:
    told: dict[int, float] = {}

    async def spoil(request: pb.PlanScopesRequest, context: Any) -> None:
        told[len(request.scopes)] = context.time_remaining()
        if any(scope.id == "bad" for scope in request.scopes):
            await context.abort(code, "oh")

    owner.plan = planned
    owner.hook = spoil
    names = [f"scope-{n}" for n in range(9)]
    await due(replica, *names, "bad")
    await replica.run()

    assert await states(replica) == dict.fromkeys(names, ExecutionState.SUCCESS)
    # What is asked in halves has half the time, so that it ends before it may be asked again.
    assert told[10] < 11
    assert told[5] < 6
    assert told[1] < 3
    # Only what was not answered is asked again.
    owner.hook = None
    owner.questions.clear()
    await start_at(replica, NOON + timedelta(seconds=50))
    await replica.run()
    assert [scope.id for scope in owner.questions] == ["bad"]
    assert (await states(replica))["bad"] is ExecutionState.SUCCESS


async def test_a_scope_that_its_owner_hangs_on_delays_no_other(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are executed while it is still asked about, and the next time without it."""
    monkeypatch.setattr("reveille_scheduler.usecases.plan_hooks.PATIENCE_SECONDS", 100.0)
    hanging = asyncio.Event()
    asked: list[set[str]] = []

    async def hang(request: pb.PlanScopesRequest, context: Any) -> None:
        about = {scope.id for scope in request.scopes}
        asked.append(about)
        if about == {"bad"}:
            await hanging.wait()
        if "bad" in about:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")

    async def executed() -> int:
        return sum(each.state is ExecutionState.SUCCESS for each in await replica.ledger())

    async def plan_beside_it(wanted: int) -> None:
        batch = await replica.plan_hooks.take("tidy", 10)
        assert batch is not None
        assert {each.scope_id for each in batch.asked} == {*names, "bad"}
        hanging.clear()
        asked.clear()
        asking = asyncio.ensure_future(replica.plan_hooks.ask(batch, replica.executor.start))
        await eventually(executed, "the others", until=lambda found: found == wanted)
        assert not asking.done()
        hanging.set()
        await asking

    owner.hook = hang
    owner.plan = planned
    names = {f"scope-{n}" for n in range(3)}
    await due(replica, *names, "bad")
    await plan_beside_it(3)
    assert asked[0] == {*names, "bad"}

    owner.plan = partial(planned, moment=NOON + MINUTE)
    await start_at(replica, NOON + 2 * MINUTE)
    await plan_beside_it(6)
    assert sorted(asked, key=len) == [{"bad"}, names]

    # Once it is answered for, it is one of them again.
    owner.hook = None
    await start_at(replica, NOON + 4 * MINUTE)
    await replica.run()
    owner.hook = hang
    await start_at(replica, NOON + 6 * MINUTE)
    asked.clear()
    await replica.run()
    assert asked[0] == {*names, "bad"}


async def test_a_scope_that_was_not_asked_about_for_an_hour_is_one_of_many_again(
    replica: Replica, owner: Owner
) -> None:
    """It may be gone for good: what is known of it is not kept for ever."""
    asked: list[set[str]] = []

    async def spoil(request: pb.PlanScopesRequest, context: Any) -> None:
        asked.append({scope.id for scope in request.scopes})
        if "bad" in asked[-1]:
            await context.abort(grpc.StatusCode.INTERNAL, "oh")

    owner.hook = spoil
    await due(replica, "good", "bad")
    await replica.run()
    for elapsed, together in ((KEPT_APART_SECONDS, False), (KEPT_APART_SECONDS + 1, True)):
        replica.elapsed += elapsed
        await start_at(replica, NOON + timedelta(seconds=replica.elapsed))
        asked.clear()
        await replica.run()
        assert ({"good", "bad"} in asked) is together


async def test_many_scopes_that_an_owner_hangs_on_keep_no_question_about_others_back(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked about one by one; beside them a question that one more spoils is divided."""
    monkeypatch.setattr("reveille_scheduler.usecases.plan_hooks.PATIENCE_SECONDS", 100.0)
    monkeypatch.setattr("reveille_scheduler.usecases.plan_hooks.MOST_CALLS", 2)
    hung = {f"hung-{n}" for n in range(4)}
    sound = {f"sound-{n}" for n in range(3)}
    spoiling = hung
    hanging = asyncio.Event()
    hanging.set()

    async def answer(request: pb.PlanScopesRequest, context: Any) -> None:
        about = {scope.id for scope in request.scopes}
        if len(about) == 1 and about <= hung:
            await hanging.wait()
        if about & spoiling:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")

    async def executed() -> set[str]:
        done = await replica.ledger()
        return {each.scope_id for each in done if each.state is ExecutionState.SUCCESS}

    owner.hook = answer
    owner.plan = planned
    await due(replica, *hung)
    await replica.run()

    spoiling = hung | {"bad"}
    hanging.clear()
    await replica.scopes.put([wish(name, rule=Hook()) for name in (*sound, "bad")])
    await start_at(replica, NOON + MINUTE)
    batch = await replica.plan_hooks.take("tidy", 10)
    assert batch is not None
    assert len(batch.asked) == 8
    asking = asyncio.ensure_future(replica.plan_hooks.ask(batch, replica.executor.start))
    await eventually(executed, "the sound ones", until=lambda found: found == sound)
    assert not asking.done()
    hanging.set()
    await asking


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    ],
    ids=["away", "busy", "closed", "not made for it"],
)
async def test_an_owner_that_answers_for_no_scope_is_not_asked_half_by_half(
    replica: Replica, owner: Owner, code: grpc.StatusCode
) -> None:
    sizes: set[int] = set()

    async def refuse(request: pb.PlanScopesRequest, context: Any) -> None:
        sizes.add(len(request.scopes))
        await context.abort(code, "no")

    owner.hook = refuse
    await due(replica, "one", "two")
    await replica.run()

    assert sizes == {2}
    assert await replica.ledger() == []


async def test_a_question_is_not_divided_for_longer_than_its_scopes_are_put_aside(
    replica: Replica, owner: Owner
) -> None:
    sizes: list[int] = []

    async def dawdle(request: pb.PlanScopesRequest, context: Any) -> None:
        sizes.append(len(request.scopes))
        replica.elapsed += PUT_ASIDE.total_seconds()
        await context.abort(grpc.StatusCode.INTERNAL, "oh")

    owner.hook = dawdle
    await due(replica, "one", "two")
    await replica.run()

    assert sizes == [2]


@pytest.mark.parametrize("before", [False, True], ids=["recorded", "before it counts"])
@pytest.mark.parametrize("most", [0, 1], ids=["no cap", "cap"])
async def test_a_plan_that_changes_nothing_does_not_stand_before_the_next(
    replica: Replica, owner: Owner, most: int, before: bool
) -> None:
    """The owner says the same again and again, whatever it is told of the newest plan."""
    await replica.jobs.register(replace(JOB, max_plans_per_tick=most))
    done = NOON - MINUTE
    plan_times = [stamp(done), stamp(NOON)]
    again = stamp(NOON + 5 * MINUTE)
    owner.plan = lambda scope: pb.ScopePlan(
        kind=scope.kind, id=scope.id, plan_times=plan_times, ask_again_time=again
    )
    await replica.scopes.put([wish(rule=Hook(), since=done if before else NOON - 2 * MINUTE)])
    for seconds in (1, 60):
        await start_at(replica, NOON + seconds * SECOND)
        await replica.run()

    plans = [plan.plan_time.ToDatetime(tzinfo=UTC) for plan in owner.plans]
    assert plans == ([NOON] if before else [done, NOON])
    assert {each.state for each in await replica.ledger()} == {ExecutionState.SUCCESS}
    (asked,) = await replica.scopes.page("tidy", None, 10)
    assert asked.next_plan_at == NOON + 5 * MINUTE


async def test_an_owner_that_never_wants_to_be_asked_again_is_understood(
    replica: Replica, owner: Owner
) -> None:
    """The last instant there is means infinity to the database; it must be read back as a time."""
    never = stamp(datetime.max.replace(tzinfo=UTC))
    owner.plan = lambda scope: pb.ScopePlan(kind=scope.kind, id=scope.id, ask_again_time=never)
    await due(replica, "one")
    await replica.run()

    (scope,) = await replica.scopes.page("tidy", None, 10)
    assert scope.next_plan_at == LAST


async def test_however_much_an_owner_names_a_transaction_records_so_much(
    replica: Replica, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is too late, so nothing of it waits for a place."""
    monkeypatch.setattr("reveille_scheduler.domain.planning.MOST_PLANS", 3)
    monkeypatch.setattr("reveille_scheduler.usecases.plan_hooks.MOST_RECORDED", 3)
    old = [stamp(NOON - n * MINUTE) for n in range(10, 15)]
    owner.plan = lambda scope: pb.ScopePlan(kind=scope.kind, id=scope.id, plan_times=old)
    await replica.scopes.put([wish(name, rule=Hook()) for name in ("one", "two")])
    await start_at(replica, NOON + SECOND)
    found: list[int] = []
    for seconds in range(2, 40, 3):
        await start_at(replica, NOON + seconds * SECOND)
        await replica.run()
        found.append(len(await replica.ledger()))

    assert found[0] == 3
    assert all(later - earlier <= 5 for earlier, later in pairwise(found))
    assert found[-1] == 10
    assert {each.reason for each in await replica.ledger()} == {"too_late"}
