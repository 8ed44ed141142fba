"""One sender's id, one delivery: whatever arrives how often, in whatever order."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import grpc
import pytest
from tests.integration.webhook.conftest import Gateway, Stage
from tests.integration.webhook.peer import FakeAutopilot, run_of

from reveille.autopilot.v1 import dispatch_service_pb2 as pb
from reveille.common.v1 import reason_pb2
from reveille_webhook.domain.delivery import Admission
from reveille_webhook.domain.states import Judgement
from reveille_webhook.store import deliveries
from reveille_webhook.store.deliveries import Judged

BODY = b'{"action":"opened"}'


async def test_two_hundred_copies_at_once_are_one_delivery_and_one_run(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()

    answers = await asyncio.gather(*(gateway.post(hook, BODY, delivery="d-1") for _ in range(200)))
    await gateway.work()

    row = await gateway.row()
    assert {answer.status for answer in answers} == {200}
    assert Counter(answer.json["status"] for answer in answers) == {
        "accepted": 1,
        "duplicate": 199,
    }
    assert {answer.json["delivery_id"] for answer in answers} == {str(row["id"])}
    assert {answer.json["run_id"] for answer in answers} == {run_of(str(row["id"]))}
    assert row["attempt_count"] == 200
    assert len(peer.bodies) == 1


async def test_copies_at_two_replicas_are_one_delivery(
    stage: Stage, gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()

    async with stage.gateway() as other:
        answers = await asyncio.gather(
            *(each.post(hook, BODY, delivery="d-1") for each in (gateway, other) * 10)
        )

    row = await gateway.row()
    assert Counter(answer.json["status"] for answer in answers) == {
        "accepted": 1,
        "duplicate": 19,
    }
    assert row["attempt_count"] == 20


async def test_ids_are_a_hook_s_own_and_without_one_everything_is_new(gateway: Gateway) -> None:
    one, two = await gateway.hook(), await gateway.hook()

    answers = [
        await gateway.post(one, BODY, delivery="d-1"),
        await gateway.post(two, BODY, delivery="d-1"),
        await gateway.post(one, BODY),
        await gateway.post(one, BODY),
    ]

    assert [answer.json["status"] for answer in answers] == ["accepted"] * 4
    assert len({answer.json["delivery_id"] for answer in answers}) == 4
    # Nor does a copy at one hook count at the other.
    copy = await gateway.post(one, BODY, delivery="d-1")
    assert copy.json["delivery_id"] == answers[0].json["delivery_id"]
    assert [row["attempt_count"] for row in await gateway.rows()] == [2, 1, 1, 1]


async def test_the_body_plays_no_part(gateway: Gateway) -> None:
    hook = await gateway.hook()

    await gateway.post(hook, BODY, delivery="d-1")
    other = await gateway.post(hook, b'{"action":"closed"}', delivery="d-1")

    assert other.json["status"] == "duplicate"
    assert (await gateway.row())["body"] == BODY


async def test_a_copy_before_its_original_was_judged_asks_for_it(
    stage: Stage, peer: FakeAutopilot
) -> None:
    peer.may_admit.clear()
    async with stage.gateway(admission_budget=0.05) as gateway:
        hook = await gateway.hook()
        first = await gateway.post(hook, BODY, delivery="d-1")
        before = len(peer.admitted)
        waiting = await gateway.post(hook, b"{}", delivery="d-1")
        asked = peer.admitted[before:]
        row = await gateway.row()
    peer.may_admit.set()
    async with stage.gateway() as gateway:
        told = await gateway.post(hook, b"{}", delivery="d-1")
        judged = await gateway.row()

    assert first.json["status"] == "queued"
    assert waiting.json == {"status": "duplicate", "delivery_id": str(row["id"])}
    # What is judged is the original, not the copy.
    assert [(each.delivery_id, list(each.actions)) for each in asked] == [
        (str(row["id"]), ["opened"])
    ]
    assert told.json == {
        "status": "duplicate",
        "delivery_id": str(row["id"]),
        "run_id": run_of(str(row["id"])),
    }
    assert judged["admission"] == "accepted"
    assert judged["attempt_count"] == 3
    # The sender's first answer stays what it was.
    assert judged["response_status"] == 202


async def test_of_two_judgements_together_the_one_that_knows_the_answer_is_written(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    peer.away = grpc.StatusCode.UNAVAILABLE
    row_id = UUID((await gateway.post(await gateway.hook(), BODY)).json["delivery_id"])
    said = Admission(Judgement.ACCEPTED, run_id=UUID(run_of(str(row_id))))
    of_a_copy, of_the_first = (
        Judged(row_id, Judgement.ACCEPTED, said, status) for status in (None, 200)
    )
    assert gateway.app.admit is not None

    await gateway.app.admit._write([[of_a_copy], [of_the_first], [of_a_copy]])

    row = await gateway.row()
    assert (row["admission"], row["response_status"]) == ("accepted", 200)


async def test_an_id_is_free_again_when_what_had_it_came_to_nothing(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id, outcome=pb.ADMIT_OUTCOME_UNKNOWN_ENDPOINT
    )
    lost = await gateway.post(hook, BODY, delivery="d-1")
    # For a while a hook that autopilot did not know is as if it were not there.
    gateway.database.move_clock(61)
    peer.admits = lambda facts: pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=pb.ADMIT_OUTCOME_IGNORED,
        reason=reason_pb2.REASON_TRIGGER_DISABLED,
    )
    ignored = await gateway.post(hook, BODY, delivery="d-1")
    peer.admits = FakeAutopilot.admits
    taken = await gateway.post(hook, BODY, delivery="d-1")

    assert (lost.status, ignored.json["status"], taken.json["status"]) == (
        404,
        "ignored",
        "accepted",
    )
    states = [row["state"] for row in await gateway.rows()]
    assert states == ["failed", "ignored", "queued"]


async def test_a_failed_delivery_with_a_run_keeps_its_id_and_is_taken_up_again(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.dispatches = lambda each: pb.DispatchResult(
        delivery_id=each.delivery_id,
        outcome=pb.DISPATCH_OUTCOME_FAILED,
        reason=reason_pb2.REASON_DISPATCH_INCOMPLETE,
        message="given up",
    )
    await gateway.post(hook, BODY, delivery="d-1")
    await gateway.work()
    failed = await gateway.row()
    peer.dispatches = FakeAutopilot.dispatches

    again = await gateway.post(hook, BODY, delivery="d-1")
    armed = await gateway.row()
    await gateway.work()

    assert (failed["state"], failed["reason"], failed["message"]) == (
        "failed",
        "dispatch_incomplete",
        "given up",
    )
    assert again.json["status"] == "duplicate"
    assert again.json["run_id"] == run_of(str(failed["id"]))
    assert (armed["state"], armed["reason"], armed["dispatch_attempts"]) == ("queued", "", 0)
    # Judged anew: autopilot may have given the old run up.
    assert [each.delivery_id for each in peer.admitted] == [str(failed["id"])] * 2
    done = await gateway.row()
    assert (done["state"], done["attempt_count"]) == ("dispatched", 2)


async def test_what_is_taken_up_again_has_the_whole_patience_anew(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    await gateway.post(hook, BODY, delivery="d-1")
    peer.away = grpc.StatusCode.UNAVAILABLE
    for _ in range(3):
        await gateway.work()
        gateway.database.move_clock(61)
    gateway.database.move_clock(24 * 3600)
    await gateway.work()
    failed = await gateway.row()

    copy = await gateway.post(hook, BODY, delivery="d-1")
    armed = await gateway.row()
    await gateway.work()
    again = await gateway.row()

    assert (failed["reason"], failed["give_backs"]) == ("dispatch_deadline", 4)
    # Nobody could judge it anew, but the run that it has is known.
    assert copy.json["run_id"] == run_of(str(failed["id"]))
    assert (armed["state"], armed["reason"], armed["message"]) == ("queued", "", "")
    assert (armed["give_backs"], armed["finished_at"]) == (0, None)
    assert (again["state"], again["give_backs"]) == ("queued", 1)
    gateway.database.move_clock(61)
    peer.away = None
    await gateway.work()
    assert (await gateway.row())["state"] == "dispatched"


@pytest.mark.parametrize("count", [1, 7])
async def test_an_insert_that_was_committed_unheard_is_no_copy_of_itself(
    gateway: Gateway, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database stored the batch, but the connection broke before it could say so."""
    hook = await gateway.hook()
    original, broken = deliveries.insert, asyncio.Event()

    async def breaking(*arguments: Any) -> Any:
        stored = await original(*arguments)
        if not broken.is_set():
            broken.set()
            raise ConnectionResetError
        return stored

    monkeypatch.setattr(deliveries, "insert", breaking)
    answers = await asyncio.gather(
        *(gateway.post(hook, BODY, delivery=f"d-{number}") for number in range(count))
    )

    assert broken.is_set()
    assert [answer.json["status"] for answer in answers] == ["accepted"] * count
    assert [row["attempt_count"] for row in await gateway.rows()] == [1] * count
