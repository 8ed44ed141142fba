"""What an owner may answer when it is asked for plans, and that a scope is judged by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf import timestamp_pb2
from tests.integration.scheduler.conftest import Owner, Replica, start_at, wish

from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime.validation import to_timestamp
from reveille_scheduler.domain.rule import Hook
from reveille_scheduler.domain.states import ExecutionState

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# The year 33658: a protocol buffer can carry it, no calendar can.
NEVER = timestamp_pb2.Timestamp(seconds=10**12)


def planned(scope: pb.HookScope) -> pb.ScopePlan:
    noon = to_timestamp(NOON)
    assert noon is not None
    return pb.ScopePlan(kind=scope.kind, id=scope.id, plan_times=[noon])


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
    await start_at(replica, NOON + 2 * timedelta(minutes=1))
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
