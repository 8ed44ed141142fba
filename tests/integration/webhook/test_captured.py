"""Captured requests that come again: what is not signed may be changed, and makes nothing new."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hmac
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest
from tests.integration.webhook.conftest import (
    SECRET,
    Gateway,
    Hook,
    Response,
    Stage,
    endpoint_of,
)
from tests.integration.webhook.peer import FakeAutopilot
from tests.integration.webhook.test_store import of
from tests.unit.webhook.signing import NOW, Signed, samples

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_runtime.ids import new_id
from reveille_testkit.waiting import eventually
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request
from reveille_webhook.domain.scheme import Header
from reveille_webhook.domain.signature import verify
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import deliveries
from reveille_webhook.usecases.store_delivery import StoreDelivery

ORIGIN = "https://hooks.example.com"
BODY = b'{"action":"opened"}'
REFUSE = endpoint_pb.EndpointOptions(content_policy=endpoint_pb.CONTENT_POLICY_REFUSE)
FLAG = endpoint_pb.EndpointOptions()
LIVE = {"queued", "dispatched"}
WAITING = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'"""


def with_header(request: Request, name: bytes, value: bytes | None) -> Request:
    """Give the request with one value of a header, or without it."""
    others = [each for each in request.headers if each[0] != name]
    return replace(request, headers=others if value is None else [*others, (name, value)])


def captured(provider: Provider, one: Signed) -> Iterable[Request]:
    """Change what somebody would who captured a request; what is signed fails then."""
    request = one.request
    types = (None, b"text/plain", b"application/octet-stream", b"application/json")
    for kind in (*types, b"application/x-www-form-urlencoded"):
        yield with_header(request, b"content-type", kind)
    names = [source.name.encode() for source in provider.dedupe if isinstance(source, Header)]
    for number, name in enumerate(names):
        yield with_header(request, name, None)
        yield with_header(request, name, b"other-%d" % number)
        yield with_header(with_header(request, name, None), b"content-type", b"text/plain")
    if provider.name == "twilio":
        yield request.with_body(b"&".join(reversed(request.body.split(b"&"))))
    elif not one.covers_body:
        document = json.loads(request.body)
        yield request.with_body(json.dumps(document, indent=1).encode())
        yield request.with_body(json.dumps({**document, "event-data": {"id": "evt_2"}}).encode())
        twice = {name: each * 2 for name, each in document.items() if isinstance(each, list)}
        yield request.with_body(json.dumps({**document, **twice}).encode())


def signs(provider: Provider, one: Signed) -> bool:
    """Tell whether a credential is more than a token."""
    verdict = verify(provider, [one.secret], one.request, NOW)
    return verdict.covers_body or verdict.signed != b""


def with_ids(provider: Provider, one: Signed) -> Signed:
    """Give a sample the ids that its sender puts into headers."""
    request, sent = one.request, {name for name, _ in one.request.headers}
    for source in provider.dedupe:
        if isinstance(source, Header) and source.name.encode() not in sent:
            request = with_header(request, source.name.encode(), b"id-1")
    return replace(one, request=request)


async def at_the_time_of_samples(gateway: Gateway) -> None:
    gateway.database.move_clock(NOW - (await gateway.database.now()).timestamp())


async def send(gateway: Gateway, hook: Hook, request: Request) -> Response:
    headers = [(name.decode(), value.decode("latin-1")) for name, value in request.headers]
    return await gateway.request("POST", f"/hooks/{hook.token}?a=1", request.body, headers)


@pytest.mark.parametrize("options", [FLAG, REFUSE], ids=["flag", "refuse"])
async def test_of_a_captured_request_nothing_runs_unmarked(
    stage: Stage, options: endpoint_pb.EndpointOptions
) -> None:
    hooks: dict[UUID, str] = {}
    async with stage.gateway(public_url=ORIGIN) as gateway:
        for name, index in itertools.product(PROVIDERS, range(3)):
            token = f"awt_{name}_{index}"
            made = samples(PROVIDERS[name], f"{ORIGIN}/hooks/{token}?a=1")
            if index < len(made) and signs(PROVIDERS[name], made[index]):
                one = with_ids(PROVIDERS[name], made[index])
                await at_the_time_of_samples(gateway)
                hook = await gateway.hook(name, secret=one.secret, token=token, options=options)
                hooks[hook.id] = name
                # The first time again it is the sender itself.
                for request in (one.request, one.request, *captured(PROVIDERS[name], one)):
                    await send(gateway, hook, request)
        rows = [row for row in await gateway.rows() if row["state"] in LIVE]

    wrong = []
    for hook_id, name in hooks.items():
        first, *others = (row for row in rows if row["endpoint_id"] == hook_id)
        if (
            any(each["content_copy_of"] != first["id"] for each in others)
            or first["content_copy_of"] is not None
            or (PROVIDERS[name].dedupe and first["attempt_count"] < 2)
            or (others and options is REFUSE)
        ):
            wrong.append((name, [(row["dedupe_key"], row["content_type"]) for row in others]))
    assert wrong == []
    assert len(set(hooks.values())) == len(PROVIDERS) - 7


@pytest.mark.parametrize(
    "provider", ["stripe", "vercel", "typeform", "notion", "intercom", "square", "circleci"]
)
@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", ""])
async def test_a_content_type_does_not_hide_an_id_that_is_signed(
    stage: Stage, provider: str, kind: str
) -> None:
    async with stage.gateway(public_url=ORIGIN) as gateway:
        await at_the_time_of_samples(gateway)
        (one,) = samples(PROVIDERS[provider], f"{ORIGIN}/hooks/awt_one?a=1")
        hook = await gateway.hook(provider, secret=one.secret, token="awt_one")
        first = await send(gateway, hook, one.request)
        again = await send(
            gateway, hook, with_header(one.request, b"content-type", kind.encode() or None)
        )

        assert first.json["status"] == "accepted"
        assert again.json["status"] == "duplicate"
        assert again.json["delivery_id"] == first.json["delivery_id"]


@pytest.mark.parametrize("options", [FLAG, REFUSE], ids=["flag", "refuse"])
async def test_what_has_another_signed_id_is_another_event(
    gateway: Gateway, options: endpoint_pb.EndpointOptions
) -> None:
    secret = b"whsec_" + base64.b64encode(SECRET)
    hook = await gateway.hook("standardwebhooks", secret=secret, options=options)
    now = int((await gateway.database.now()).timestamp())

    def signed(message_id: str, late: int = 0) -> Request:
        stamp = str(now + late)
        text = f"{message_id}.{stamp}.".encode() + BODY
        made = base64.b64encode(hmac.digest(SECRET, text, "sha256"))
        return Request(
            [
                (b"content-type", b"application/json"),
                (b"webhook-id", message_id.encode()),
                (b"webhook-timestamp", stamp.encode()),
                (b"webhook-signature", b"v1," + made),
            ],
            BODY,
        )

    answers = [
        await send(gateway, hook, each)
        for each in (signed("msg_1"), signed("msg_2"), signed("msg_1", late=5))
    ]

    assert [each.json["status"] for each in answers] == ["accepted", "accepted", "duplicate"]
    assert [row["content_copy_of"] for row in await gateway.rows()] == [None, None]


async def test_a_body_that_was_signed_compressed_is_known_compressed(gateway: Gateway) -> None:
    hook = await gateway.hook(options=REFUSE)
    packed = gzip.compress(BODY, mtime=0)
    first = await gateway.post(hook, packed, {"Content-Encoding": "gzip"}, delivery="d-1")
    again = await gateway.post(hook, packed, {"Content-Type": "text/plain"}, delivery="d-2")

    assert (first.json["status"], again.status) == ("accepted", 409)
    assert (await gateway.rows())[0]["body"] == BODY


async def test_content_from_before_a_hook_refused_copies_is_refused(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    first = await gateway.post(hook, BODY, delivery="d-1")
    marked = await gateway.post(hook, BODY, delivery="d-2")
    await gateway.endpoints().PutEndpoint(
        endpoint_pb.PutEndpointRequest(endpoint=endpoint_of(hook, revision=2, options=REFUSE))
    )

    replayed = await gateway.post(hook, BODY, delivery="d-3")
    retries = [await gateway.post(hook, BODY, delivery=each) for each in ("d-1", "d-2")]
    new = await gateway.post(hook, b'{"action":"closed"}', delivery="d-4")

    assert (replayed.status, replayed.json["reason"]) == (409, "replayed_content")
    refused = next(row for row in await gateway.rows() if row["state"] == "rejected")
    assert first.json["delivery_id"] in refused["message"]
    assert [(each.json["status"], each.json["delivery_id"]) for each in retries] == [
        ("duplicate", each.json["delivery_id"]) for each in (first, marked)
    ]
    assert new.json["status"] == "accepted"
    await gateway.work()
    assert len(peer.bodies) == 3


async def test_copies_that_are_stored_together_know_their_original(gateway: Gateway) -> None:
    hook = await gateway.hook()
    content = b"k" * 32
    batch = [
        replace(of(hook), dedupe_key="d-1", content_key=content),
        replace(of(hook), dedupe_key="d-2", content_key=content),
        replace(of(hook), dedupe_key="d-2", content_key=content),
        replace(of(hook), content_key=content),
        replace(of(hook), dedupe_key="d-3", content_key=b"l" * 32),
    ]

    known = await StoreDelivery(gateway.database)._store(batch)

    assert not [each for each in known if isinstance(each, Exception)]
    rows = await gateway.rows()
    (first,) = [row for row in rows if row["content_key"] == content and not row["content_copy_of"]]
    others = [row for row in rows if row["content_key"] == content and row["id"] != first["id"]]
    assert len(others) == 2
    assert {row["content_copy_of"] for row in others} == {first["id"]}
    assert [row["attempt_count"] for row in rows if row["dedupe_key"] == "d-2"] == [2]


class _Undone(Exception):
    pass


async def test_copies_that_are_stored_by_two_batches_at_once_know_their_original(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook()
    store, content = StoreDelivery(gateway.database), b"k" * 32
    held_up = replace(of(hook), dedupe_key="z")
    first = replace(of(hook), dedupe_key="d-1", content_key=content)
    copy = replace(of(hook), dedupe_key="d-2", content_key=content)
    other = replace(of(hook), dedupe_key="d-3", content_key=b"l" * 32)
    with contextlib.suppress(_Undone):
        async with gateway.database.transaction() as tx:
            await deliveries.insert(tx, [held_up])
            # Its statement stores the first, and waits in the middle.
            one = asyncio.ensure_future(store._store([first, replace(held_up, id=new_id())]))
            await eventually(lambda: gateway.sql(WAITING), "the first batch waits for a lock")
            two = asyncio.ensure_future(store._store([copy]))
            # Another content waits for nobody.
            await store._store([other])
            raise _Undone
    await asyncio.gather(one, two)

    rows = {row["dedupe_key"]: row for row in await gateway.rows()}
    assert rows["d-2"]["content_copy_of"] == first.id
    assert {key for key, row in rows.items() if row["content_copy_of"] is None} == {
        "d-1",
        "d-3",
        "z",
    }


async def test_a_signature_of_one_hook_is_no_copy_at_another(gateway: Gateway) -> None:
    one, two = await gateway.hook(options=REFUSE), await gateway.hook(options=REFUSE)

    answers = [await gateway.post(hook, BODY, delivery="d-1") for hook in (one, two)]

    assert [each.json["status"] for each in answers] == ["accepted", "accepted"]
