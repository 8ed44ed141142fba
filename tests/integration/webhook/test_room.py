"""Bodies that come in at once: together they take no more memory than there is room for."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.integration.webhook.conftest import SECRET, Gateway, Stage, signature
from tests.integration.webhook.peer import FakeAutopilot
from tests.integration.webhook.test_protocol import connected, head

from reveille_testkit.waiting import eventually
from reveille_webhook.domain import parsing
from reveille_webhook.domain.endpoint import MOST_BODY_BYTES
from reveille_webhook.domain.room import SMALL_BODY, Room

PROXY = ("127.0.0.0/8",)
SMALL = b'{"a":1}'
LARGE = b'{"a":"' + b"x" * SMALL_BODY + b'"}'
SIZE = 4 * MOST_BODY_BYTES


@pytest_asyncio.fixture
async def gateway(stage: Stage) -> AsyncIterator[Gateway]:
    async with stage.gateway(body_room=SIZE, trusted_proxies=PROXY) as running:
        yield running


def room_of(gateway: Gateway) -> Room:
    """Look into the application behind the server."""
    room = gateway.edge._application._room  # type: ignore[attr-defined]  # a callable to it
    assert isinstance(room, Room)
    return room


async def taken(gateway: Gateway) -> int:
    return room_of(gateway).taken


async def test_without_room_large_bodies_are_asked_to_wait_and_small_ones_are_not(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook()
    others = [room_of(gateway).place(f"other {number}") for number in range(2)]
    for each in others:
        each.hold(SIZE // 2)
    refused = await gateway.post(hook, LARGE)
    small = await gateway.post(hook, SMALL)
    others[0].leave()
    fits = await gateway.post(hook, LARGE, delivery="d-1")

    assert (refused.status, refused.json["error"]["reason"]) == (429, "too_busy")
    assert int(refused.headers["retry-after"]) > 0
    assert [each.json["status"] for each in (small, fits)] == ["accepted"] * 2
    assert await taken(gateway) == SIZE // 2


async def test_an_address_leaves_half_of_the_room_to_others(gateway: Gateway) -> None:
    hook = await gateway.hook()
    room_of(gateway).place("198.51.100.1").hold(SIZE // 2)

    answers = [
        await gateway.post(hook, LARGE, {"X-Forwarded-For": address}, delivery=address)
        for address in ("198.51.100.1", "203.0.113.1")
    ]

    assert [each.status for each in answers] == [429, 200]


async def test_a_body_takes_room_while_it_comes_in_until_it_is_answered_or_given_up(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook()
    lines = (
        "Host: x",
        f"Content-Length: {len(LARGE)}",
        f"X-Hub-Signature-256: {signature(SECRET, LARGE)}",
    )
    async with connected(gateway) as (_, writer):
        writer.write(head(hook.token, *lines) + LARGE[:-1])
        await eventually(lambda: taken(gateway), "the body takes room", until=bool)
    await eventually(lambda: taken(gateway), "nobody takes room", until=lambda size: size == 0)

    peer.may_admit.clear()
    asking = asyncio.ensure_future(gateway.post(hook, LARGE))
    await peer.until(lambda peer: bool(peer.admitted))
    assert await taken(gateway) == len(LARGE)
    peer.may_admit.set()
    assert (await asking).json["status"] == "accepted"
    assert await taken(gateway) == 0


async def test_a_compressed_body_takes_what_it_has_grown_to_as_well(
    gateway: Gateway, peer: FakeAutopilot
) -> None:
    hook = await gateway.hook(max_body_bytes=MOST_BODY_BYTES)
    body = json.dumps({"a": "x" * 500_000}).encode()
    packed = gzip.compress(body, mtime=0)
    room_of(gateway).place("127.0.0.1").hold(SIZE // 2 - 3 * (len(body) + len(packed)))
    peer.may_admit.clear()
    with contextlib.ExitStack() as stack:
        stack.callback(peer.may_admit.set)
        before = await taken(gateway)
        asking = [
            asyncio.ensure_future(
                gateway.post(hook, packed, {"Content-Encoding": "gzip"}, delivery=f"d-{number}")
            )
            for number in range(3)
        ]
        await peer.until(lambda peer: len(peer.admitted) == len(asking))
        assert await taken(gateway) == before + 3 * (len(body) + len(packed))
        refused = await gateway.post(hook, packed, {"Content-Encoding": "gzip"}, delivery="d-3")
    answers = [await each for each in asking]
    assert [each.json["status"] for each in answers] == ["accepted"] * 3
    assert (refused.status, refused.json["error"]["reason"]) == (429, "too_busy")
    assert await taken(gateway) == before
    assert len(await gateway.rows()) == 3


@pytest.mark.parametrize("provider", ["generic_hmac", "slack"])
async def test_what_was_read_of_a_body_is_gone_while_others_are_waited_for(
    gateway: Gateway, peer: FakeAutopilot, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Document(dict[str, Any]):
        """One that can be looked for."""

    made: list[weakref.ref[Document]] = []
    read = parsing.parse

    def parse(*given: Any, **how: Any) -> parsing.Parsed:
        document = Document(read(*given, **how).document)
        made.append(weakref.ref(document))
        return parsing.Parsed(document)

    monkeypatch.setattr(parsing, "parse", parse)
    hook = await gateway.hook(provider, secret=None)
    peer.may_admit.clear()
    asking = asyncio.ensure_future(gateway.post(hook, SMALL, secret=None))
    with contextlib.ExitStack() as stack:
        stack.callback(peer.may_admit.set)
        await peer.until(lambda peer: bool(peer.admitted))
        assert [each() for each in made] == [None]
    assert (await asking).status == 200
