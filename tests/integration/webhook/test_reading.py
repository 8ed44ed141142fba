"""Reading what came in: pages, bodies, explanations, each only for its workspace."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.webhook.conftest import Gateway, Hook
from tests.integration.webhook.peer import FakeAutopilot, run_of

from reveille.autopilot.v1 import dispatch_service_pb2 as dispatch_pb
from reveille.common.v1 import reason_pb2
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime.access import Role
from reveille_runtime.errors import InvalidArgument, NotFound
from reveille_runtime.rpc_errors import from_rpc_error

BODY = b'{"action":"opened"}'


def member_of(gateway: Gateway, workspace_id: UUID) -> str:
    return gateway.stage.keys.user("maria", {workspace_id: Role.MEMBER})


async def listed(gateway: Gateway, hook: Hook, **fields: Any) -> pb.ListDeliveriesResponse:
    request = pb.ListDeliveriesRequest(workspace_id=str(hook.workspace_id), **fields)
    await gateway.settled()
    answer: pb.ListDeliveriesResponse = await gateway.deliveries().ListDeliveries(request)
    return answer


async def explained(
    gateway: Gateway, wanted: object, token: str | None = None
) -> list[explain_pb.Finding]:
    await gateway.settled()
    stub = gateway.explains(token)
    answer = await stub.Explain(explain_pb.ExplainRequest(id=str(wanted)))
    return list(answer.findings)


async def test_a_page_follows_another_and_filters_hold(gateway: Gateway) -> None:
    hook = await gateway.hook()
    for number in range(5):
        await gateway.post(hook, BODY, delivery=f"d-{number}")
    await gateway.post(hook, BODY, secret=None)

    first = await listed(gateway, hook, page_size=4)
    second = await listed(gateway, hook, page_size=4, page_token=first.next_page_token)
    rejected = await listed(gateway, hook, states=[pb.DELIVERY_STATE_REJECTED])
    nowhere = await listed(gateway, hook, endpoint_id=str(uuid4()))

    found = [*first.deliveries, *second.deliveries]
    assert [each.dedupe_id for each in found] == ["", "d-4", "d-3", "d-2", "d-1", "d-0"]
    assert (len(first.deliveries), second.next_page_token) == (4, "")
    assert [each.signature_state for each in rejected.deliveries] == [pb.SIGNATURE_STATE_MISSING]
    assert list(nowhere.deliveries) == []
    # A page follows one of the same question alone.
    moment = Timestamp(seconds=1)
    for another in (
        {"endpoint_id": str(hook.id)},
        {"states": [pb.DELIVERY_STATE_QUEUED]},
        {"start_time": moment},
        {"end_time": moment},
        {"event": "issues"},
        {"provider": "github"},
        {"dedupe_id": "d-1"},
        {"body_sha256": b"x" * 32},
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await listed(gateway, hook, page_size=4, page_token=first.next_page_token, **another)
        assert isinstance(from_rpc_error(caught.value), InvalidArgument), another


async def test_a_delivery_tells_what_it_is(gateway: Gateway) -> None:
    hook = await gateway.hook()
    answer = await gateway.post(hook, BODY, delivery="d-1")
    request = pb.GetDeliveryRequest(delivery_id=answer.json["delivery_id"])

    await gateway.settled()
    shown = (await gateway.deliveries().GetDelivery(request)).delivery

    assert shown.endpoint_id == str(hook.id)
    assert (shown.provider, shown.event, shown.action) == ("github", "issues", "opened")
    assert shown.state == pb.DELIVERY_STATE_QUEUED
    assert shown.signature_state == pb.SIGNATURE_STATE_VALID
    assert shown.run_id == run_of(shown.delivery_id)
    assert (shown.response_status, shown.attempt_count) == (200, 1)
    assert dict(shown.headers) == {
        "x-github-event": "issues",
        "x-github-delivery": "d-1",
        "x-hub-signature-256-present": "true",
    }
    root = await gateway.spans.wait("POST /hooks/{token}")
    assert root.context is not None
    assert shown.trace_id == f"{root.context.trace_id:032x}"


async def test_strangers_find_nothing(gateway: Gateway) -> None:
    hook = await gateway.hook()
    answer = await gateway.post(hook, BODY)
    delivery_id = answer.json["delivery_id"]
    stranger = member_of(gateway, uuid4())
    member = member_of(gateway, hook.workspace_id)
    unknown = pb.GetDeliveryRequest(delivery_id=str(uuid4()))
    wanted = pb.GetDeliveryRequest(delivery_id=delivery_id)
    calls = gateway.deliveries(stranger)

    refusals = []
    for call in (
        calls.GetDelivery(wanted),
        calls.GetDelivery(unknown),
        calls.ListDeliveries(pb.ListDeliveriesRequest(workspace_id=str(hook.workspace_id))),
        calls.GetDeliveryBody(pb.GetDeliveryBodyRequest(delivery_id=delivery_id)).read(),
        calls.ExplainSignature(pb.ExplainSignatureRequest(delivery_id=delivery_id)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        refusals.append(from_rpc_error(caught.value))

    assert all(isinstance(each, NotFound) for each in refusals)
    assert refusals[0].message == f"delivery {delivery_id} does not exist, or is not yours"
    assert (await gateway.deliveries(member).GetDelivery(wanted)).delivery.event == "issues"
    assert await explained(gateway, delivery_id, stranger) == []
    assert await explained(gateway, hook.id, stranger) == []
    assert len(await explained(gateway, delivery_id, member)) == 1


async def test_an_empty_body_is_no_chunk(gateway: Gateway) -> None:
    hook = await gateway.hook()
    answer = await gateway.post(hook, b"", {"Content-Type": "text/plain"})
    request = pb.GetDeliveryBodyRequest(delivery_id=answer.json["delivery_id"])

    chunks = [each.chunk async for each in gateway.deliveries().GetDeliveryBody(request)]

    assert chunks == []


async def test_a_delivery_is_explained_by_every_name_it_has(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    answer = await gateway.post(hook, BODY, delivery="d-1")
    await gateway.post(hook, BODY, delivery="d-1")
    delivery_id, run_id = answer.json["delivery_id"], answer.json["run_id"]
    waiting = await explained(gateway, delivery_id)
    gateway.database.move_clock(10)
    waiting += await explained(gateway, delivery_id)
    await gateway.work()

    by_delivery = await explained(gateway, delivery_id)
    by_run = await explained(gateway, run_id)
    by_key = await explained(gateway, f"webhook:{delivery_id}")
    by_second_key = await explained(gateway, f"webhook:{delivery_id}#2")
    by_hook = await explained(gateway, hook.id)

    assert [each.state for each in waiting] == ["queued", "due_late"]
    (found,) = by_delivery
    assert by_delivery == by_run == by_key == by_second_key
    assert found.state == "dispatched"
    assert "issues.opened" in found.text
    assert "sent it 2 times" in found.text
    assert list(found.related) == [run_id, str(hook.id)]
    assert [(each.table, each.id) for each in found.rows] == [("webhook.deliveries", delivery_id)]
    assert {each.subject for each in by_hook} == {"hook", "delivery"}
    assert await explained(gateway, "schedule:x:y") == []
    assert await explained(gateway, uuid4()) == []


async def test_every_way_to_come_to_nothing_is_told_apart(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    refused = await gateway.post(hook, BODY, secret=None)
    peer.away = grpc.StatusCode.UNAVAILABLE
    stored = await gateway.post(hook, BODY)
    peer.away = None
    peer.admits = lambda facts: dispatch_pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=dispatch_pb.ADMIT_OUTCOME_IGNORED,
        reason=reason_pb2.REASON_EVENT_FILTERED,
        message="the trigger listens for push",
    )
    ignored = await gateway.post(hook, BODY)

    findings = [
        (await explained(gateway, each.json["delivery_id"]))[0]
        for each in (refused, stored, ignored)
    ]

    assert [each.state for each in findings] == ["rejected", "queued", "ignored"]
    assert "no signature" in findings[0].text
    assert findings[0].command == f"reveille triggers secrets list {hook.id}"
    assert "not judged yet" in findings[1].text
    assert "listens for push" in findings[2].text
    assert findings[2].reason == "event_filtered"


async def test_every_way_to_wait_and_to_end_is_told_apart(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.away = grpc.StatusCode.UNAVAILABLE
    delivery_id = (await gateway.post(hook, BODY)).json["delivery_id"]
    other = uuid4()

    for changes, state, words, command in (
        (
            (
                "available_at = clock_timestamp() + interval '90 s', message = 'it is away', "
                "dispatch_attempts = 2"
            ),
            "waiting_for_retry",
            "after 2 attempts (it is away); the next attempt is in",
            "",
        ),
        ("message = '', dispatch_attempts = 0", "queued", "the next attempt is in", ""),
        (
            (
                "lease_token = gen_random_uuid(), "
                "lease_expires_at = clock_timestamp() + interval '9 s'"
            ),
            "dispatching",
            "a worker is dispatching it",
            "",
        ),
        (
            "lease_expires_at = clock_timestamp() - interval '1 s'",
            "waiting_for_lease",
            "another one will take over",
            "",
        ),
        (
            (
                "lease_token = NULL, lease_expires_at = NULL, state = 'failed', "
                f"finished_at = clock_timestamp(), run_id = '{other}', reason = 'dispatch_failed', "
                "sender_retries = 3"
            ),
            "failed",
            (
                "dispatch_failed; sent again by its sender, it is taken up again; "
                "its sender counts 3 tries"
            ),
            f"reveille deliveries replay {delivery_id}",
        ),
        (
            (
                "state = 'dispatched', admission = 'skipped', message = 'its runtime is offline', "
                f"content_copy_of = '{other}'"
            ),
            "skipped",
            (
                "its run was skipped: its runtime is offline; its sender counts 3 tries; the same "
                f"signed content came before under another id, as delivery {other}"
            ),
            "",
        ),
        (
            f"content_copy_of = NULL, replayed_from = '{other}'",
            "skipped",
            f"it is a replay of delivery {other}",
            "",
        ),
    ):
        await gateway.sql(f"UPDATE webhook.deliveries SET {changes}")
        (found,) = await explained(gateway, delivery_id)
        assert found.state == state
        assert words in found.text
        assert found.command == command
    assert str(other) in found.related


async def test_what_came_in_during_a_pause_can_be_replayed(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    peer.admits = lambda facts: dispatch_pb.AdmitResult(
        delivery_id=facts.delivery_id,
        outcome=dispatch_pb.ADMIT_OUTCOME_IGNORED,
        reason=reason_pb2.REASON_AUTOPILOT_PAUSED,
    )
    delivery_id = (await gateway.post(hook, BODY)).json["delivery_id"]

    (found,) = await explained(gateway, delivery_id)

    # Its sender was told that it is safe, and does not send it again by itself.
    assert (found.state, found.reason) == ("ignored", "autopilot_paused")
    assert "replay it once the autopilot is active" in found.text
    assert found.command == f"reveille deliveries replay {delivery_id}"


async def test_a_hook_is_explained_too(gateway: Gateway) -> None:
    bearer, expiring = await gateway.hook(secret=None), await gateway.hook()
    await gateway.sql(
        "UPDATE webhook.endpoint_secrets SET expires_at = clock_timestamp() - interval '1 s'"
    )

    demanding = await gateway.hook("aws_sns", secret=None)
    signed = await gateway.hook()
    await gateway.sql(
        "UPDATE webhook.endpoints SET previous_token_sha256 = token_sha256, "
        "previous_token_expires_at = clock_timestamp() + interval '1 hour' WHERE id = $1",
        signed.id,
    )
    (open_hook,) = await explained(gateway, bearer.id)
    (refusing,) = await explained(gateway, expiring.id)
    (bare,) = await explained(gateway, demanding.id)
    (rotated,) = await explained(gateway, signed.id)
    await gateway.endpoints().DeleteEndpoint(
        endpoint_pb.DeleteEndpointRequest(endpoint_id=str(bearer.id), revision=2)
    )
    (deleted,) = await explained(gateway, bearer.id)

    assert [each.state for each in (open_hook, refusing, deleted)] == [
        "accepting",
        "refusing",
        "deleted",
    ]
    assert "its address is the only credential" in open_hook.text
    assert "nothing has come in yet" in open_hook.text
    assert rotated.state == "accepting"
    assert "signed with one of 1 live secrets" in rotated.text
    assert "its address before the last rotation still counts" in rotated.text
    assert "rotation" not in open_hook.text
    assert refusing.command == f"reveille triggers secrets add {expiring.id}"
    assert bare.state == "refusing"
    assert "its sender needs one" in bare.text
    assert bare.command == f"reveille triggers secrets add {demanding.id}"
