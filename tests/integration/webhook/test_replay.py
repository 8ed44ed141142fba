"""What people do with deliveries: search, replay, watch, and ask why a signature failed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from tests.integration.webhook.conftest import SECRET, Gateway, Hook, signature, stamp
from tests.integration.webhook.peer import FakeAutopilot, run_of

from reveille.webhook.v1 import delivery_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime.access import Role
from reveille_runtime.crypto import Sealer
from reveille_runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from reveille_runtime.rpc_errors import from_rpc_error
from reveille_webhook.usecases import diagnose
from reveille_webhook.usecases.secrets import Secrets
from reveille_webhook.usecases.watch import Watch

BODY = b'{"action":"opened","n":1.0}'


def admin_of(gateway: Gateway, hook: Hook, role: Role = Role.ADMIN) -> Any:
    return gateway.deliveries(gateway.stage.keys.user("ada", {hook.workspace_id: role}))


async def refused(call: Any) -> Exception:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def replay(delivery_id: str, request_id: str = "") -> pb.ReplayDeliveryRequest:
    return pb.ReplayDeliveryRequest(delivery_id=delivery_id, request_id=request_id)


async def test_a_replay_has_the_same_bytes_and_a_run_of_its_own(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(options=endpoint_pb.EndpointOptions(lane_path="action"))
    first = (await gateway.post(hook, BODY, delivery="d-1")).json["delivery_id"]
    await gateway.work()
    stub = admin_of(gateway, hook)

    made = (await stub.ReplayDelivery(replay(first, "once"))).delivery
    again = (await stub.ReplayDelivery(replay(first, "once"))).delivery
    await gateway.work()

    original, copy = await gateway.rows()
    assert made.delivery_id == again.delivery_id == str(copy["id"]) != first
    assert made.replayed_from == first
    assert (copy["body"], copy["event"], copy["dedupe_key"]) == (BODY, "issues", None)
    assert (copy["state"], copy["signature_state"]) == ("dispatched", "valid")
    # Its agent gets the same headers, and it follows what goes before it in its lane.
    assert copy["headers"] == original["headers"] != {}
    assert (copy["lane_key"], original["lane_key"]) == ("opened", "opened")
    assert copy["content_type"] == original["content_type"]
    assert str(copy["run_id"]) == run_of(str(copy["id"])) != str(original["run_id"])
    assert [each.body for each in peer.bodies] == [BODY, BODY]
    assert isinstance(
        await refused(stub.ReplayDelivery(replay(str(copy["id"]), "once"))), InvalidArgument
    )


async def test_what_a_hook_leaves_out_is_not_left_out_of_a_replay(gateway: Gateway) -> None:
    hook = await gateway.hook(options=endpoint_pb.EndpointOptions(own_markers=["opened"]))
    left_out = (await gateway.post(hook, BODY)).json

    await admin_of(gateway, hook).ReplayDelivery(replay(left_out["delivery_id"]))
    await gateway.work()

    rows = await gateway.rows()
    assert left_out["reason"] == "own_marker"
    assert [each["state"] for each in rows] == ["ignored", "dispatched"]


async def test_what_nobody_vouches_for_is_not_replayed(gateway: Gateway) -> None:
    hook = await gateway.hook()
    rejected = (await gateway.post(hook, BODY, secret=b"another")).json["delivery_id"]
    accepted = (await gateway.post(hook, BODY, delivery="d-1")).json["delivery_id"]
    stub = admin_of(gateway, hook)

    assert isinstance(await refused(stub.ReplayDelivery(replay(rejected))), FailedPrecondition)
    assert isinstance(await refused(stub.ReplayDelivery(replay(str(uuid4())))), NotFound)
    member = admin_of(gateway, hook, Role.MEMBER)
    assert isinstance(await refused(member.ReplayDelivery(replay(accepted))), PermissionDenied)
    stranger = gateway.deliveries(gateway.stage.keys.user("eve", {}))
    assert isinstance(await refused(stranger.ReplayDelivery(replay(accepted))), NotFound)
    service = gateway.deliveries(gateway.stage.keys.service("autopilot"))
    assert isinstance(await refused(service.ReplayDelivery(replay(accepted))), PermissionDenied)
    await gateway.endpoints().DeleteEndpoint(
        endpoint_pb.DeleteEndpointRequest(endpoint_id=str(hook.id), revision=2)
    )
    assert isinstance(await refused(stub.ReplayDelivery(replay(accepted))), FailedPrecondition)
    assert len(await gateway.rows()) == 2


async def test_deliveries_are_found_by_whatever_is_known_of_them(gateway: Gateway) -> None:
    hook = await gateway.hook()
    other = await gateway.hook("stripe", secret=None, workspace_id=hook.workspace_id)
    await gateway.post(hook, BODY, delivery="d-1")
    await gateway.post(hook, b'{"x":1}', event="push", delivery="d-2")
    await gateway.post(other, b'{"id":"evt_1","type":"paid"}', secret=None)
    # Of another workspace, where nobody who asks here may look.
    await gateway.post(await gateway.hook(), BODY, delivery="elsewhere")
    rows = await gateway.rows()
    second = Timestamp()
    second.FromDatetime(rows[1]["received_at"])
    stub = gateway.deliveries()

    async def found(**fields: Any) -> list[str]:
        request = pb.ListDeliveriesRequest(workspace_id=str(hook.workspace_id), **fields)
        answer = await stub.ListDeliveries(request)
        return [each.dedupe_id for each in answer.deliveries]

    assert await found() == ["evt_1", "d-2", "d-1"]
    assert await found(event="push") == ["d-2"]
    assert await found(provider="stripe") == ["evt_1"]
    assert await found(dedupe_id="d-1") == ["d-1"]
    assert await found(body_sha256=hashlib.sha256(BODY).digest()) == ["d-1"]
    assert await found(start_time=second) == ["evt_1", "d-2"]
    assert await found(end_time=second) == ["d-1"]
    assert await found(event="push", provider="stripe") == []
    assert isinstance(await refused(found(body_sha256=b"short")), InvalidArgument)


async def test_watching_tells_what_comes_in_and_what_becomes_of_it(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    await gateway.post(hook, BODY, delivery="before")
    watching = gateway.deliveries().WatchDeliveries(
        pb.WatchDeliveriesRequest(workspace_id=str(hook.workspace_id), endpoint_id=str(hook.id))
    )
    await watching.initial_metadata()
    told: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    async def listen() -> None:
        async for each in watching:
            told.put_nowait((each.delivery.dedupe_id, each.delivery.state))

    listening = asyncio.ensure_future(listen())
    try:
        another = await gateway.hook(workspace_id=hook.workspace_id)
        await gateway.post(another, BODY, delivery="of another hook")
        await gateway.post(hook, BODY, delivery="d-1")
        assert await asyncio.wait_for(told.get(), 20) == ("d-1", pb.DELIVERY_STATE_QUEUED)
        await gateway.work()
        assert await asyncio.wait_for(told.get(), 20) == ("d-1", pb.DELIVERY_STATE_DISPATCHED)
        await gateway.post(hook, BODY, secret=None)
        assert await asyncio.wait_for(told.get(), 20) == ("", pb.DELIVERY_STATE_REJECTED)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_watching_keeps_up_with_more_than_one_look_can_take(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_webhook.usecases.watch._MOST", 3)
    hook = await gateway.hook()
    watching = gateway.deliveries().WatchDeliveries(
        pb.WatchDeliveriesRequest(workspace_id=str(hook.workspace_id))
    )
    await watching.initial_metadata()
    await gateway.post(await gateway.hook(), BODY, delivery="of another workspace")
    sent = [f"d-{number}" for number in range(20)]
    for each in sent:
        await gateway.post(hook, BODY, delivery=each)

    told = [(await asyncio.wait_for(watching.read(), 20)).delivery.dedupe_id for _ in sent]

    assert told == sent
    watching.cancel()


async def test_watching_misses_nothing_late_and_follows_what_is_old_to_its_end(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook, elsewhere = await gateway.hook(), await gateway.hook()
    watch = Watch(gateway.database, asyncio.Event(), interval=0.01)
    told = watch.follow(hook.workspace_id, None, await gateway.database.now())

    async def next_one() -> tuple[str | None, str]:
        async with asyncio.timeout(10):
            delivery = await anext(told)
        return delivery.dedupe_key, delivery.state.value

    gateway.database.move_clock(60)
    await gateway.post(hook, BODY, delivery="d-1")
    first = await next_one()
    # It says that it came in before what was told, and was committed after it.
    await gateway.post(elsewhere, BODY, delivery="late")
    await gateway.settled()
    await gateway.sql(
        "UPDATE webhook.deliveries SET workspace_id = $1, received_at = received_at - "
        "interval '3 s' WHERE dedupe_key = 'late'",
        hook.workspace_id,
    )
    late = await next_one()
    gateway.database.move_clock(200)
    await gateway.post(hook, BODY, delivery="d-2")
    second = await next_one()
    await gateway.sql(
        "UPDATE webhook.deliveries SET state = 'dispatched', finished_at = clock_timestamp() "
        "WHERE dedupe_key = 'd-1'"
    )

    assert [first, late, second] == [(key, "queued") for key in ("d-1", "late", "d-2")]
    assert await next_one() == ("d-1", "dispatched")


async def test_watching_is_for_the_members_of_a_workspace(gateway: Gateway) -> None:
    stranger = gateway.deliveries(gateway.stage.keys.user("eve", {}))
    watching = stranger.WatchDeliveries(pb.WatchDeliveriesRequest(workspace_id=str(uuid4())))

    assert isinstance(await refused(watching.read()), NotFound)


async def test_why_a_signature_failed_is_told_and_what_was_expected_is_not(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook()
    other = await gateway.hook(secret=b"the secret of another hook", workspace_id=hook.workspace_id)
    compact = json.dumps(json.loads(BODY), separators=(",", ":")).encode()
    assert compact == BODY
    spaced = json.dumps(json.loads(BODY)).encode()
    cases = {
        "reserialized_body": {"X-Hub-Signature-256": signature(SECRET, spaced)},
        "newline_in_secret": {"X-Hub-Signature-256": signature(SECRET + b"\n", BODY)},
        "prefix": {"X-Hub-Signature-256": signature(SECRET, BODY).removeprefix("sha256=")},
        "other_hooks_secret": {
            "X-Hub-Signature-256": signature(b"the secret of another hook", BODY)
        },
        "header_missing": {},
    }
    for code, headers in cases.items():
        answer = await gateway.post(hook, BODY, headers, secret=None)
        assert answer.status == 401

        told = await gateway.deliveries().ExplainSignature(
            pb.ExplainSignatureRequest(delivery_id=answer.json["delivery_id"])
        )

        assert [each.code for each in told.findings] == [code]
        assert signature(SECRET, BODY)[7:] not in str(told)
        if code == "other_hooks_secret":
            assert str(other.id) in told.findings[0].text
    stored = str(await gateway.rows())
    assert signature(SECRET, BODY)[7:] not in stored


async def test_secrets_of_the_same_sender_are_looked_at_first(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_MOST_SECRETS", 1)
    hook = await gateway.hook()
    place = hook.workspace_id
    other = await gateway.hook(secret=b"the secret of another hook", workspace_id=place)
    # Newer, and nobody mixes it up with that of a GitHub hook.
    await gateway.hook("gitlab", secret=b"the secret of an unlike hook", workspace_id=place)

    answer = await gateway.post(hook, BODY, secret=b"the secret of another hook")

    told = await gateway.deliveries().ExplainSignature(
        pb.ExplainSignatureRequest(delivery_id=answer.json["delivery_id"])
    )
    (finding,) = told.findings
    assert (finding.code, str(other.id) in finding.text) == ("other_hooks_secret", True)


async def test_a_secret_is_recognised_among_many(gateway: Gateway) -> None:
    hook = await gateway.hook()
    other = await gateway.hook(secret=b"the oldest of many", workspace_id=hook.workspace_id)
    secrets = Secrets(gateway.database, Sealer(gateway.stage.sealing_key))
    for number in range(25):
        await secrets.add(other.id, uuid4(), b"a newer one %d" % number, None)

    answer = await gateway.post(hook, BODY, secret=b"the oldest of many")

    told = await gateway.deliveries().ExplainSignature(
        pb.ExplainSignatureRequest(delivery_id=answer.json["delivery_id"])
    )
    assert [each.code for each in told.findings] == ["other_hooks_secret"]


async def test_the_secrets_of_other_workspaces_play_no_part(gateway: Gateway) -> None:
    hook = await gateway.hook()
    await gateway.hook(secret=b"the secret of a stranger's hook")

    answer = await gateway.post(hook, BODY, secret=b"the secret of a stranger's hook")

    told = await gateway.deliveries().ExplainSignature(
        pb.ExplainSignatureRequest(delivery_id=answer.json["delivery_id"])
    )
    assert list(told.findings) == []


async def test_a_secret_that_has_expired_is_recognised(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "_MOST_SECRETS", 2)
    hook = await gateway.hook()
    expired = b"the secret before the last one"
    now = (await gateway.database.now()).timestamp()
    await gateway.endpoints().AddSecret(
        endpoint_pb.AddSecretRequest(
            endpoint_id=str(hook.id),
            secret_id=str(uuid4()),
            secret=expired,
            expire_time=stamp(now + 30),
        )
    )
    gateway.database.move_clock(60)
    # Those of other hooks come after its own, and one that cannot be opened is passed over.
    for _ in range(2):
        broken = await gateway.hook(workspace_id=hook.workspace_id)
        await gateway.sql(
            "UPDATE webhook.endpoint_secrets SET sealed = 'x' WHERE endpoint_id = $1", broken.id
        )

    answer = await gateway.post(hook, BODY, secret=expired)

    told = await gateway.deliveries().ExplainSignature(
        pb.ExplainSignatureRequest(delivery_id=answer.json["delivery_id"])
    )
    assert [each.code for each in told.findings] == ["expired_secret"]


async def test_a_sender_that_counts_its_tries_is_heard(gateway: Gateway) -> None:
    hook = await gateway.hook("slack", secret=None)
    body = b'{"event_id":"Ev1","event":{"type":"message","user":"U1"}}'

    await gateway.post(hook, body, secret=None)
    again = await gateway.post(hook, body, {"X-Slack-Retry-Num": "2"}, secret=None)
    await gateway.post(hook, body, {"X-Slack-Retry-Num": "1"}, secret=None)

    row = await gateway.row()
    assert again.json["status"] == "duplicate"
    assert (row["attempt_count"], row["sender_retries"], row["sender"]) == (3, 2, "U1")
