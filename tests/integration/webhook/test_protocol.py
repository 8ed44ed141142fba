"""The hostile-input table: what a door to the outside refuses, and how soon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.integration.webhook.conftest import SECRET, Gateway, Stage, read_response, signature

from reveille_testkit.waiting import eventually
from reveille_webhook.http.protocol import StrictProtocol

BODY = b'{"a":1}'
CHUNKS = b"7\r\n" + BODY + b"\r\n0\r\n\r\n"
LIMIT_OF_BYTES = 32 * 1024
LIMIT_OF_HEADERS = 100


def head(hook: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST /hooks/{hook} HTTP/1.1", *lines, "", ""]).encode("latin-1")


@asynccontextmanager
async def connected(
    gateway: Gateway,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
        try:
            yield reader, writer
        finally:
            writer.close()


REFUSED = {
    "length and chunked": (["Host: x", "Content-Length: 7", "Transfer-Encoding: chunked"], 400),
    "two lengths": (["Host: x", "Content-Length: 7", "Content-Length: 7"], 400),
    "list of lengths": (["Host: x", "Content-Length: 7, 7"], 400),
    "signed length": (["Host: x", "Content-Length: +7"], 400),
    "coded and chunked": (["Host: x", "Transfer-Encoding: gzip, chunked"], 501),
    "coded and chunked apart": (
        ["Host: x", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"],
        501,
    ),
    "chunked twice": (["Host: x", *["Transfer-Encoding: chunked"] * 2], 400),
    "coded alone": (["Host: x", "Transfer-Encoding: identity"], 501),
    "no host": (["Content-Length: 7"], 400),
    "two hosts": (["Host: x", "Host: y", "Content-Length: 7"], 400),
    "folded": (["Host: x", "X-Folded: a", " b", "Content-Length: 7"], 400),
    "space in a name": (["Host: x", "X Bad: a", "Content-Length: 7"], 400),
    "upgrade": (["Host: x", "Connection: upgrade", "Upgrade: websocket"], 400),
    "large header": (["Host: x", "X-Large: " + "x" * (LIMIT_OF_BYTES + 1)], 431),
    "large name": (["Host: x", "X" * (LIMIT_OF_BYTES + 1) + ": y"], 431),
    "many headers": (["Host: x", *(f"X-{n}: y" for n in range(LIMIT_OF_HEADERS))], 431),
}


async def test_what_two_parsers_could_read_in_two_ways_is_refused(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)

    answers = {
        # Whoever read it in the other way would find nothing amiss.
        name: await gateway.raw(head(hook.token, *lines) + (CHUNKS if "chunk" in name else BODY))
        for name, (lines, _) in REFUSED.items()
    }

    assert {name: answer.status for name, answer in answers.items()} == {
        name: status for name, (_, status) in REFUSED.items()
    }
    assert {answer.headers["connection"] for answer in answers.values()} == {"close"}
    assert await gateway.rows() == []


async def test_bare_line_feeds_are_refused(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    request = head(hook.token, "Host: x", "Content-Length: 7").replace(b"\r\n", b"\n")

    answer = await gateway.raw(request + BODY)

    assert answer.status == 400
    assert await gateway.rows() == []


async def test_a_head_that_never_ends_is_refused_at_its_bound(gateway: Gateway) -> None:
    async with connected(gateway) as (reader, writer):
        writer.write(b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nX-Endless: ")
        await heard(gateway)
        writer.write(b"x" * (LIMIT_OF_BYTES + 1))
        answer = await read_response(reader)

    assert answer.status == 431


async def test_a_long_address_is_a_large_head(gateway: Gateway) -> None:
    """Also where it comes in one read: the query is taken apart before anything is verified."""
    hook = await gateway.hook("meta", secret=None)

    answers = [
        await gateway.raw(
            head(f"{hook.token}?a={'x' * size}", "Host: x", "Content-Length: 7") + BODY
        )
        for size in (LIMIT_OF_BYTES // 2, LIMIT_OF_BYTES)
    ]

    assert [answer.status for answer in answers] == [200, 431]


async def test_the_bounds_themselves_are_fine(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    lines = ["Host: x", "Content-Length: 7", *(f"X-{n}: {'y' * 200}" for n in range(98))]

    answer = await gateway.raw(head(hook.token, *lines) + BODY)

    assert answer.status == 200


async def test_latin_1_in_a_header_is_bytes_and_no_fault(gateway: Gateway) -> None:
    hook = await gateway.hook()

    answer = await gateway.post(hook, BODY, {"User-Agent": "caf\xe9", "Referer": "\xff\xfe"})

    assert answer.status == 200
    assert (await gateway.row())["headers"]["user-agent"] == "caf\u00e9"


async def test_a_body_in_one_byte_chunks_is_one_body(gateway: Gateway) -> None:
    hook = await gateway.hook(max_body_bytes=2 * 1024 * 1024)
    body = b'{"x":"' + b"y" * 50_000 + b'"}'
    sign = signature(SECRET, body)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    lines = (
        "Host: x",
        "Transfer-Encoding: chunked",
        "Content-Type: application/json",
        f"X-Hub-Signature-256: {sign}",
    )

    answer = await gateway.raw(head(hook.token, *lines) + chunks)

    assert answer.json["status"] == "accepted"
    assert (await gateway.row())["body"] == body


@pytest.mark.parametrize("rest", [b"", b"zz\r\n"], ids=["cut", "broken"])
async def test_a_body_that_breaks_off_after_a_prefix_that_verifies_is_not_taken(
    gateway: Gateway, rest: bytes
) -> None:
    hook = await gateway.hook()
    lines = (
        "Host: x",
        "Transfer-Encoding: chunked",
        f"X-Hub-Signature-256: {signature(SECRET, BODY)}",
    )
    async with connected(gateway) as (reader, writer):
        writer.write(head(hook.token, *lines) + b"7\r\n" + BODY + b"\r\n" + rest)
        if rest:
            assert (await read_response(reader)).status == 400
        else:
            writer.write_eof()
            assert await reader.read() == b""

    await gateway.spans.wait("POST /hooks/{token}")
    assert await gateway.rows() == []


async def test_who_asks_before_sending_a_body_is_told_to_go_on(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    asked = head(hook.token, "Host: x", "Content-Length: 7", "Expect: 100-continue")

    async with connected(gateway) as (reader, writer):
        writer.write(asked)
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(BODY)
        answer = await read_response(reader)

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.status == 200


async def test_before_its_time_nobody_is_told_to_go_on(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    request = head(hook.token, "Host: x", "Content-Length: 7", "Expect: 100-continue")

    answer = await gateway.raw(request.replace(b"HTTP/1.1", b"HTTP/1.0") + BODY)

    assert answer.status == 200


async def test_an_answer_without_a_body_goes_out_too(gateway: Gateway) -> None:
    hook = await gateway.hook(provider="trello")
    asked = f"HEAD /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    async with connected(gateway) as (reader, writer):
        writer.write(asked)
        first = await reader.readuntil(b"\r\n\r\n")
        writer.write(asked)
        again = await reader.readuntil(b"\r\n\r\n")

    assert first.startswith(b"HTTP/1.1 200 ")
    assert again.startswith(b"HTTP/1.1 200 ")


async def test_one_connection_serves_many_requests(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    # Each head is within the bounds, all of them together are not.
    others = (f"X-{n}: {'y' * 200}" for n in range(LIMIT_OF_HEADERS // 2))
    request = head(hook.token, "Host: x", "Content-Length: 7", *others) + BODY
    async with connected(gateway) as (reader, writer):
        statuses = []
        for _ in range(3):
            writer.write(request)
            statuses.append((await read_response(reader)).status)
        writer.write(request + request)
        statuses += [(await read_response(reader)).status for _ in range(2)]

    assert statuses == [200] * 5
    assert len(await gateway.rows()) == 5


async def test_after_an_early_answer_the_rest_of_the_body_is_dropped_up_to_a_bound(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook(max_body_bytes=10)
    bound = gateway.edge.connections.limits.discarded_bytes
    async with connected(gateway) as (reader, writer):
        writer.write(head(hook.token, "Host: x", "Content-Length: 50000") + b"x" * 50_000)
        first = await read_response(reader)
        writer.write(head(hook.token, "Host: x", "Content-Length: 7") + BODY)
        second = await read_response(reader)
        # The bound is of each request, not of the connection.
        for _ in range(2):
            writer.write(head(hook.token, "Host: x", f"Content-Length: {bound}"))
            assert (await read_response(reader)).status == 413
            writer.write(b"x" * bound)
        writer.write(head(hook.token, "Host: x", f"Content-Length: {bound * 4}"))
        third = await read_response(reader)
        writer.write(b"x" * bound * 2)
        with contextlib.suppress(ConnectionError):
            # The server hangs up long before it has read all that was announced.
            assert await reader.read() == b""

    assert (first.status, second.status, third.status) == (413, 401, 413)


@pytest.mark.parametrize(
    "request_part",
    [b"POST /hooks/x HT", b"POST /hooks/x HTTP/1.1\r\nHost: x\r\n", b"\r\n"],
    ids=["request line", "headers", "an empty line"],
)
async def test_slow_heads_are_ended_with_408(gateway: Gateway, request_part: bytes) -> None:
    async with connected(gateway) as (reader, writer):
        writer.write(request_part)
        await heard(gateway)
        later(gateway, gateway.edge.connections.limits.head_timeout + 1)
        answer = await read_response(reader)

        assert answer.status == 408
        assert await reader.read() == b""


async def test_an_empty_line_after_an_answer_begins_a_head(gateway: Gateway) -> None:
    async with connected(gateway) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await read_response(reader)).status == 404
        writer.write(b"\r\n")
        await heard(gateway)
        later(gateway, gateway.edge.connections.limits.head_timeout + 1)

        assert await reader.read() == b""


async def test_a_slow_head_leaves_its_body_less_time(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    async with connected(gateway) as (reader, writer):
        writer.write(f"POST /hooks/{hook.token} HTTP/1.1\r\nHost: x\r\n".encode())
        connection = await only_connection(gateway)
        connection._began -= 4
        writer.write(b"Content-Length: 7\r\n\r\n" + BODY[:3])
        await heard(gateway)
        later(gateway, gateway.edge.connections.limits.request_timeout - 2)

        assert connection.transport.is_closing()
        assert (await read_response(reader)).status == 408


async def test_who_connects_and_says_nothing_is_hung_up_on(gateway: Gateway) -> None:
    async with connected(gateway) as (reader, _):
        await heard(gateway)
        later(gateway, gateway.edge.connections.limits.head_timeout + 1)

        assert await reader.read() == b""


async def test_slow_bodies_are_ended_with_408_and_leave_nothing(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    async with connected(gateway) as (reader, writer):
        writer.write(head(hook.token, "Host: x", "Content-Length: 7") + BODY[:3])
        await heard(gateway)
        later(gateway, gateway.edge.connections.limits.request_timeout + 1)
        answer = await read_response(reader)

    assert answer.status == 408
    await gateway.spans.wait("POST /hooks/{token}")
    assert await gateway.rows() == []


async def test_a_request_that_is_in_has_no_deadline_of_the_wire(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    peer = gateway.stage.peer
    peer.may_admit.clear()
    async with connected(gateway) as (reader, writer):
        writer.write(head(hook.token, "Host: x", "Content-Length: 7") + BODY)
        await peer.until(lambda peer: bool(peer.admitted))
        later(gateway, 3600)
        peer.may_admit.set()
        answer = await read_response(reader)

    assert answer.json["status"] == "accepted"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00garbage\r\n\r\n",
        b"POST /hooks/x HTTP/1.1\r\nX Bad: a\r\n\r\n",
        b"POST /hooks/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no request", "broken head", "broken body"],
)
async def test_a_refusal_does_not_overtake_the_answers_before_it(
    gateway: Gateway, garbage: bytes
) -> None:
    hook = await gateway.hook(secret=None)
    peer = gateway.stage.peer
    peer.may_admit.clear()
    good = head(hook.token, "Host: x", "Content-Length: 7") + BODY
    async with connected(gateway) as (reader, writer):
        writer.write(good + good + garbage)
        await peer.until(lambda peer: bool(peer.admitted))
        await heard(gateway)
        writer.write(good)
        await heard(gateway)
        peer.may_admit.set()
        answers = [await read_response(reader) for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    assert [answer.status for answer in answers] == [200, 200, 400]
    assert [answer.json["status"] for answer in answers[:2]] == ["accepted"] * 2
    assert answers[2].headers["connection"] == "close"
    assert len(await gateway.rows()) == 2


async def test_garbage_in_what_is_dropped_after_an_answer_gets_no_second_one(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook(max_body_bytes=10)
    async with connected(gateway) as (reader, writer):
        writer.write(
            head(hook.token, "Host: x", "Transfer-Encoding: chunked")
            + b"b\r\n"
            + b"x" * 11
            + b"\r\n"
        )
        assert (await read_response(reader)).status == 413
        writer.write(b"zz\r\n")
        assert await reader.read() == b""


async def test_a_slow_head_behind_a_request_does_not_cost_it_its_answer(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    peer = gateway.stage.peer
    peer.may_admit.clear()
    async with connected(gateway) as (reader, writer):
        good = head(hook.token, "Host: x", "Content-Length: 7") + BODY
        writer.write(good + b"POST /hooks/x HTTP/1.1\r\nHost")
        await peer.until(lambda peer: bool(peer.admitted))
        later(gateway, gateway.edge.connections.limits.head_timeout + 1)
        peer.may_admit.set()
        answers = [await read_response(reader) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 408]


async def test_what_trails_a_body_is_no_header(gateway: Gateway) -> None:
    hook = await gateway.hook()
    lines = ("Host: x", "Content-Type: application/json", "Transfer-Encoding: chunked")
    trailing = f"X-Hub-Signature-256: {signature(SECRET, BODY)}\r\nX-GitHub-Event: push\r\n\r\n"
    chunks = b"7\r\n" + BODY + b"\r\n0\r\n" + trailing.encode()

    answer = await gateway.raw(head(hook.token, *lines) + chunks)

    assert answer.status == 401
    assert (await gateway.row())["event"] == "webhook.received"


async def test_too_many_trailers_are_refused_like_too_many_headers(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    lines = ("Host: x", "Transfer-Encoding: chunked")
    trailing = "".join(f"X-{n}: y\r\n" for n in range(LIMIT_OF_HEADERS)) + "\r\n"

    answer = await gateway.raw(head(hook.token, *lines) + b"0\r\n" + trailing.encode())

    assert answer.status == 431


async def test_requests_wait_behind_one_another_up_to_a_bound(gateway: Gateway) -> None:
    hook = await gateway.hook(secret=None)
    peer = gateway.stage.peer
    peer.may_admit.clear()
    bound = gateway.edge.connections.limits.pipelined
    good = head(hook.token, "Host: x", "Content-Length: 7") + BODY
    async with connected(gateway) as (reader, writer):
        writer.write(good + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * (bound + 50))
        await peer.until(lambda peer: bool(peer.admitted))
        peer.may_admit.set()
        statuses = [(await read_response(reader)).status for _ in range(bound + 2)]
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    assert statuses == [200, *[404] * bound, 429]


async def test_a_request_whose_head_began_in_an_earlier_read_is_no_large_head(
    gateway: Gateway,
) -> None:
    hook = await gateway.hook(secret=None)
    body = b'{"x":"' + b"y" * 60_000 + b'"}'
    first = head(hook.token, "Host: x", f"Content-Length: {len(body)}") + body
    second = head(hook.token, "Host: x", "Content-Length: 7") + BODY
    async with connected(gateway) as (reader, writer):
        writer.write(first + second[:50])
        answers = [await read_response(reader)]
        writer.write(second[50:])
        answers.append(await read_response(reader))

    assert [answer.status for answer in answers] == [200, 200]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /hooks/{} HTTP/2.0", 505),
        ("POST /hooks/{}#part HTTP/1.1", 400),
        ("POST /hooks/{} HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
    ],
    ids=["another version", "a fragment", "chunks before their time"],
)
async def test_a_first_line_that_is_not_ours_is_refused(
    gateway: Gateway, line: str, status: int
) -> None:
    hook = await gateway.hook(secret=None)
    length, body = ("", CHUNKS) if "chunked" in line else ("Content-Length: 7\r\n", BODY)
    request = f"{line.format(hook.token)}\r\nHost: x\r\n{length}\r\n".encode()

    answer = await gateway.raw(request + body)

    assert answer.status == status
    assert await gateway.rows() == []


@asynccontextmanager
async def answer_nobody_takes(
    gateway: Gateway,
) -> AsyncIterator[tuple[asyncio.StreamReader, StrictProtocol]]:
    """Have a request under way whose sender takes nothing of what is written."""
    hook = await gateway.hook(secret=None)
    peer = gateway.stage.peer
    peer.may_admit.clear()
    async with connected(gateway) as (reader, writer):
        writer.write(head(hook.token, "Host: x", "Content-Length: 7") + BODY)
        await peer.until(lambda peer: bool(peer.admitted))
        connection = await only_connection(gateway)
        connection.pause_writing()
        yield reader, connection


async def test_who_reads_nothing_is_hung_up_on(gateway: Gateway) -> None:
    async with answer_nobody_takes(gateway) as (reader, _):
        later(gateway, gateway.edge.connections.limits.request_timeout - 1)
        assert len(gateway.edge.connections) == 1
        later(gateway, gateway.edge.connections.limits.request_timeout + 1)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        gateway.stage.peer.may_admit.set()


async def test_who_only_reads_slowly_gets_the_answer(gateway: Gateway) -> None:
    async with answer_nobody_takes(gateway) as (reader, connection):
        connection.resume_writing()
        later(gateway, gateway.edge.connections.limits.request_timeout + 1)
        gateway.stage.peer.may_admit.set()

        assert (await read_response(reader)).status == 200


async def test_an_end_that_nobody_reads_comes_all_the_same(gateway: Gateway) -> None:
    async with connected(gateway) as (_, writer):
        cast("asyncio.ReadTransport", writer.transport).pause_reading()
        connection = await only_connection(gateway)
        connection.transport.write(b"x" * (32 << 20))
        connection.transport.close()
        later(gateway, 0)
        assert len(gateway.edge.connections) == 1
        later(gateway, gateway.edge.connections.limits.request_timeout + 1)
        await eventually(number(gateway), "it is gone", until=lambda count: count == 0)


async def test_an_address_that_holds_its_connections_gets_no_more_until_it_lets_go(
    stage: Stage,
) -> None:
    async with stage.gateway(connections_per_address=2) as gateway:
        async with connected(gateway) as (first, _), connected(gateway):
            async with connected(gateway) as (excess, late):
                late.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                refused = await read_response(excess)
                # It takes nobody else's place while it is still to be closed.
                assert gateway.edge._server is not None
                assert len(gateway.edge._server.server_state.connections) == 2
                assert await excess.read() == b""
            later(gateway, gateway.edge.connections.limits.head_timeout + 1)
            assert await first.read() == b""
        served = await gateway.request("GET", "/elsewhere")
        # Addresses that hold nothing take no room.
        await eventually(number(gateway), "all are gone", until=lambda count: count == 0)
        assert not gateway.edge.connections._held

    assert (refused.status, refused.json["error"]["reason"]) == (429, "too_many_connections")
    assert refused.headers["content-type"] == "application/json"
    assert refused.headers["connection"] == "close"
    assert int(refused.headers["retry-after"]) > 0
    assert served.status == 404


@pytest.mark.parametrize(
    "settings",
    [
        {"connections_per_address": 0},
        {"connections_per_address": 1, "trusted_proxies": ("127.0.0.0/8",)},
    ],
    ids=["no limit", "a proxy of ours"],
)
async def test_whom_the_limit_of_an_address_is_not_for(
    stage: Stage, settings: dict[str, Any]
) -> None:
    async with stage.gateway(**settings) as gateway, connected(gateway), connected(gateway):
        assert (await gateway.request("GET", "/elsewhere")).status == 404


async def test_more_connections_than_are_served_at_once_are_told_so_in_json(stage: Stage) -> None:
    async with (
        stage.gateway(http_connections=2, connections_per_address=0) as gateway,
        connected(gateway),
    ):
        fits = await gateway.request("GET", "/elsewhere")
        async with connected(gateway):
            refused = await gateway.request("GET", "/elsewhere")

    assert fits.status == 404
    assert (refused.status, refused.json["error"]["reason"]) == (429, "too_busy")
    assert refused.headers["connection"] == "close"
    assert int(refused.headers["retry-after"]) > 0


def number(gateway: Gateway) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        return len(gateway.edge.connections)

    return count


async def only_connection(gateway: Gateway) -> StrictProtocol:
    """Give the one connection that is left once the others have said goodbye."""
    await heard(gateway)
    await eventually(number(gateway), "it is alone", until=lambda count: count == 1)
    (connection,) = gateway.edge.connections
    return connection


async def heard(gateway: Gateway) -> None:
    """Wait until the server has read what was sent so far: it reads in the order of arrival."""
    for _ in range(2):
        assert (await gateway.request("GET", "/elsewhere")).status == 404


def later(gateway: Gateway, seconds: float) -> None:
    """Enforce deadlines as they will be by then."""
    gateway.edge.connections.sweep(asyncio.get_running_loop().time() + seconds)
