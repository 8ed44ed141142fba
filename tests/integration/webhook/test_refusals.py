"""What strangers post: what it costs, what is kept of it, and what it may not crowd out."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import tracemalloc
from collections.abc import Mapping
from datetime import datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.integration.webhook.conftest import Gateway, Hook, Response, Stage

from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_webhook.domain.diagnosis import Finding
from reveille_webhook.providers.special import SNS_CONFIRMS_FOR
from reveille_webhook.store import deliveries, endpoints
from reveille_webhook.usecases import diagnose

BODY = b'{"action":"opened"}'
MIB = 1 << 20
PROXY = ("127.0.0.0/8",)


async def ask(
    gateway: Gateway, hook: Hook, document: Mapping[str, object] | bytes, address: str
) -> Response:
    """Post from an address, with a signature of nobody's."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("X-Forwarded-For", address),
        ("X-Hub-Signature-256", "sha256=" + "0" * 64),
    ]
    return await gateway.request("POST", f"/hooks/{hook.token}", body, headers)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 800 + b"0," * 127_000 + b"0" + b"]" * 800,
        b"[" * 800 + b"0," * (MIB // 2 - 1000) + b"0" + b"]" * 800,
        b"[" * 500_000 + b"]" * 500_000,
        b'["' + b"\\u00e9" * 100_000 + b'"]',
        b'["' + b"\\n" * 100_000 + b'"]',
    ],
    ids=["deep numbers", "a MiB of them", "depth", "escaped characters", "escaped ends of lines"],
)
async def test_what_a_stranger_posts_costs_little_more_than_its_size(
    gateway: Gateway, body: bytes
) -> None:
    hook = await gateway.hook(max_body_bytes=MIB)
    await ask(gateway, hook, BODY, "198.51.100.1")

    tracemalloc.start()
    try:
        answer = await ask(gateway, hook, body, "198.51.100.1")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    kept = (await gateway.rows())[-1]
    assert (answer.status, answer.json["reason"]) == (401, "invalid_signature")
    assert (str(kept["id"]), kept["body_bytes"]) == (answer.json["delivery_id"], len(body))
    assert most < 24 * len(body)


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, MemoryError])
async def test_a_failure_that_cannot_be_explained_is_refused_and_kept(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise error

    hook = await gateway.hook()
    monkeypatch.setattr(diagnose, "diagnose", fails)
    unexplained = await gateway.post(hook, BODY, secret=b"another")
    monkeypatch.undo()
    monkeypatch.setattr(endpoints, "other_secrets", fails)
    without_others = await gateway.post(hook, BODY, secret=b"another")

    assert [unexplained.status, without_others.status] == [401, 401]
    assert [(row["state"], row["signature_notes"]) for row in await gateway.rows()] == [
        ("rejected", []),
        ("rejected", []),
    ]


async def test_others_are_served_while_a_failure_is_looked_into(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into, served = threading.Event(), threading.Event()
    unserved = []

    def looks(*_: object) -> list[Finding]:
        looked_into.set()
        unserved.append(not served.wait(10))
        return [Finding("prefix")]

    hook = await gateway.hook()
    monkeypatch.setattr(diagnose, "diagnose", looks)
    monkeypatch.setattr(diagnose, "_MOST_TOGETHER", 2)
    refused = [asyncio.create_task(gateway.post(hook, BODY, secret=b"another")) for _ in range(3)]
    first, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
    assert looked_into.is_set()
    assert (await gateway.post(hook, BODY)).status == 200
    served.set()
    await asyncio.gather(*refused)

    notes = [row["signature_notes"] for row in await gateway.rows() if row["state"] == "rejected"]
    # One after another, and nobody waits for very many.
    assert (len(first), unserved) == (1, [False, False])
    assert sorted(notes) == [[], ["prefix"], ["prefix"]]


async def test_an_address_that_floods_a_hook_does_not_cost_others_their_rows(
    stage: Stage,
) -> None:
    async with stage.gateway(rejected_rows=2, trusted_proxies=PROXY) as gateway:
        hook = await gateway.hook()
        flood = [await ask(gateway, hook, BODY, "198.51.100.1") for _ in range(6)]
        others = [
            await ask(gateway, hook, BODY, f"203.0.113.{number}") for number in (1, 1, 2, 3, 4)
        ]
        rows = await gateway.rows()

    assert {each.status for each in [*flood, *others]} == {401}
    assert ["delivery_id" in each.json for each in flood] == [True, True, *[False] * 4]
    assert ["delivery_id" in each.json for each in others] == [True, False, True, False, False]
    assert len(rows) == 4


async def test_a_flood_at_one_hook_does_not_cost_another_its_rows(stage: Stage) -> None:
    async with stage.gateway(rejected_rows=1) as gateway:
        flooded, other = await gateway.hook(), await gateway.hook()
        # Of one address: whatever a large sender sends comes from a few.
        first = [await ask(gateway, flooded, BODY, "") for _ in range(3)]
        then = await ask(gateway, other, BODY, "")

    assert ["delivery_id" in each.json for each in first] == [True, False, False]
    assert "delivery_id" in then.json


async def test_of_copies_that_are_refused_a_sample_is_kept(stage: Stage) -> None:
    refuse = endpoint_pb.EndpointOptions(content_policy=endpoint_pb.CONTENT_POLICY_REFUSE)
    async with stage.gateway(rejected_rows=1) as gateway:
        hook = await gateway.hook(options=refuse)
        await gateway.post(hook, BODY, delivery="d-0")
        copies = [await gateway.post(hook, BODY, delivery=f"d-{n}") for n in range(1, 5)]
        rows = await gateway.rows()

    assert {each.status for each in copies} == {409}
    assert ["delivery_id" in each.json for each in copies] == [True, False, False, False]
    assert [row["reason"] for row in rows] == ["", "replayed_content"]


async def test_a_verified_question_is_kept_whatever_else_comes(stage: Stage) -> None:
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    async with stage.gateway(rejected_rows=1) as gateway:
        hook = await gateway.hook("aws_sns", secret=public)
        now = await gateway.database.now()
        confirmations = [confirmation(key, f"m-{number}", now) for number in range(3)]
        for _ in range(5):
            await ask(gateway, hook, {**confirmations[0], "Token": "forged"}, "198.51.100.1")
        answers = [await ask(gateway, hook, each, "198.51.100.1") for each in confirmations]
        rows = await gateway.rows()

    assert [each.status for each in answers] == [200] * 3
    assert [(row["event"], row["state"], row["signature_state"]) for row in rows[1:]] == [
        ("confirmation", "ignored", "valid")
    ] * 3


async def test_a_verified_question_that_was_captured_fills_no_table(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise ConnectionError

    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    async with stage.gateway() as gateway:
        hook, other = [await gateway.hook("aws_sns", secret=public) for _ in range(2)]
        now = await gateway.database.now()
        question = confirmation(key, "m-1", now)
        with monkeypatch.context() as patched:
            patched.setattr(deliveries, "insert", fails)
            not_kept = await ask(gateway, hook, question, "198.51.100.1")
        together = await asyncio.gather(
            *(ask(gateway, hook, question, f"198.51.100.{number}") for number in range(8))
        )
        elsewhere = await ask(gateway, other, question, "198.51.100.1")
        gateway.database.move_clock(SNS_CONFIRMS_FOR + 60)
        late = await ask(gateway, hook, question, "198.51.100.1")
        rows = await gateway.rows()

    assert not_kept.status == 503
    assert [each.status for each in [*together, elsewhere]] == [200] * 9
    assert late.status == 401
    kept = [row["endpoint_id"] for row in rows if row["reason"] == "handshake"]
    assert kept == [hook.id, other.id]


def confirmation(key: rsa.RSAPrivateKey, message_id: str, now: datetime) -> Mapping[str, str]:
    """Sign a question of Amazon's as it asks it."""
    document = {
        "Message": "You have chosen to subscribe.",
        "MessageId": message_id,
        "SubscribeURL": "https://sns.example.com/?Action=ConfirmSubscription",
        "Timestamp": now.isoformat(),
        "Token": "t-1",
        "TopicArn": "arn:aws:sns:eu-west-1:1:t",
        "Type": "SubscriptionConfirmation",
    }
    text = "".join(f"{name}\n{value}\n" for name, value in document.items()).encode()
    signature = base64.b64encode(key.sign(text, PKCS1v15(), SHA256())).decode()
    return {**document, "SignatureVersion": "2", "Signature": signature}


@pytest.mark.parametrize("nested", [b"[]", b'{"a":{}}'], ids=["lists", "objects"])
async def test_a_document_is_not_kept_while_others_are_waited_for(
    gateway: Gateway, nested: bytes
) -> None:
    hook = await gateway.hook(secret=None)
    body = b"[" + b",".join([nested] * 20_000) + b"]"
    peer = gateway.stage.peer
    await ask(gateway, hook, BODY, "198.51.100.1")
    peer.may_admit.clear()
    tracemalloc.start()
    try:
        asking = [
            asyncio.ensure_future(ask(gateway, hook, body, "198.51.100.1")) for _ in range(10)
        ]
        await peer.until(lambda peer: len(peer.admitted) == 1 + len(asking))
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    peer.may_admit.set()
    answers = await asyncio.gather(*asking)

    assert {each.json["status"] for each in answers} == {"accepted"}
    # Beside the body itself, there is what the test sends, and what lies in buffers.
    assert now < 8 * len(body) * len(asking)


async def test_an_unsigned_question_is_kept_beside_a_flood_of_bad_requests(stage: Stage) -> None:
    question = {"verification_token": "secret_1"}
    async with stage.gateway(rejected_rows=1, trusted_proxies=PROXY) as gateway:
        hook = await gateway.hook("notion", secret=None, max_body_bytes=100)
        for _ in range(5):
            assert (await ask(gateway, hook, b"x" * 101, "198.51.100.1")).status == 413
        flood = [await ask(gateway, hook, question, "198.51.100.1") for _ in range(5)]
        real = await ask(gateway, hook, question, "203.0.113.1")
        rows = await gateway.rows()

    assert [each.status for each in [*flood, real]] == [200] * 6
    # One of the flood, and the sender's own.
    assert [row["event"] for row in rows if row["reason"] == "handshake"] == [
        "verification_token"
    ] * 2
    assert len(rows) == 1 + 2
