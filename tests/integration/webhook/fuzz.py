"""Requests that nobody should send: odd bytes everywhere, forgeries, and true ones between them."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import zlib
from collections import Counter
from dataclasses import dataclass, field

import brotli
from tests.integration.webhook.conftest import Gateway, Hook, signature

SECRET = b"a secret that no forger has"
CONTENT_TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "application/x-www-form-urlencoded",
    "text/plain",
    "application/xml",
    "application/octet-stream",
    "multipart/form-data; boundary=x",
    "application/vnd.a+json",
    "",
    "\xff/\xfe;=",
)
BODIES = (
    b"",
    b"{}",
    b'{"action":"opened"}',
    b'\xef\xbb\xbf{"a":1}',
    '{"a":"\u00e9"}'.encode("utf-16"),
    b'{"a":"\\u0000"}',
    b'{"a":"\\ud800"}',
    b'{"a":NaN,"b":1e400,"c":' + b"9" * 5000 + b"}",
    b"[" * 3000,
    b"[" * 3000 + b"]" * 3000,
    b'{"a":1,"a":2}',
    b"payload=%7B%22a%22%3A1%7D",
    b"payload=%zz&a&&==",
    b"\x00\xff\xfe",
    b'"scalar"',
    b'{"type":"url_verification","challenge":"x"}',
    b'{"challenge":"x"}',
    b'{"value":[{"clientState":"x"}]}',
    b'{"notificationItems":[{"NotificationRequestItem":{"additionalData":null}}]}',
    b'{"signature":{"timestamp":[],"token":1,"signature":"x"}}',
    b'{"Type":"Notification","Signature":"eA==","SignatureVersion":{}}',
    b'{"event":{"type":{"a":1}},"sender":{"login":["x"]}}',
)
CODINGS = ("", "gzip", "deflate", "br", "zstd", "gzip, br", "\xff")
HEADERS = (
    "X-Hub-Signature-256",
    "X-Hub-Signature",
    "Stripe-Signature",
    "X-Slack-Signature",
    "X-Slack-Request-Timestamp",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "X-GitHub-Event",
    "X-GitHub-Delivery",
    "Idempotency-Key",
    "Authorization",
    "X-Gitlab-Token",
    "X-Forwarded-For",
    "traceparent",
    "Cookie",
    "X-Hook-Secret",
    "X-Twilio-Signature",
    "Content-Type",
)
VALUES = (
    "",
    " ",
    "sha256=",
    "sha256=" + "0" * 64,
    "t=1,v1=00",
    "t=,v1=",
    ",,,,",
    "v0=zz",
    "v1,AAAA v1a,BBBB",
    "\xff\xfe",
    "-1",
    "1e9",
    "9" * 400,
    "nan",
    "HMAC x",
    "Bearer a.b.c",
    "00-" + "1" * 32 + "-" + "1" * 16 + "-01",
    "::ffff:1.2.3.4, unknown",
    "x" * 5000,
)
QUERIES = (
    "",
    "?",
    "?hub.mode=subscribe&hub.verify_token=x",
    "?challenge=x",
    "?crc_token=x",
    "?%ff",
)
HOSTS = ("x", "[", "[x]", "x:y", "]:80", "\xff", "x:99999999")
FORGED_SAFE = {"accepted", "queued", "held", "skipped"}


@dataclass
class Outcome:
    """What came back, and what should not have."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def request(dice: random.Random, hook: Hook) -> tuple[bytes, bool]:
    """Make one request, and tell whether whoever made it had the secret."""
    body = dice.choice(BODIES)
    if dice.random() < 0.3 and body:
        changed = bytearray(body)
        changed[dice.randrange(len(changed))] = dice.randrange(256)
        body = bytes(changed)
    coding = dice.choice(CODINGS) if dice.random() < 0.2 else ""
    if coding in {"gzip", "deflate", "br"} and dice.random() < 0.7:
        pack = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}[coding]
        body = pack(body + b" " * dice.choice((0, 300_000)))
    true = dice.random() < 0.3
    lines = [f"Content-Length: {len(body)}", f"Host: {dice.choice(HOSTS)}"]
    if content_type := dice.choice(CONTENT_TYPES):
        lines.append(f"Content-Type: {content_type}")
    if coding:
        lines.append(f"Content-Encoding: {coding}")
    for _ in range(dice.randrange(5)):
        name = dice.choice(HEADERS)
        if not (true and name == "X-Hub-Signature-256"):
            lines.append(f"{name}: {dice.choice(VALUES)}")
    if true:
        lines.append(f"X-Hub-Signature-256: {signature(SECRET, body)}")
    method = dice.choices(("POST", "GET", "HEAD", "OPTIONS", "PUT"), (92, 3, 2, 2, 1))[0]
    token = hook.token if dice.random() < 0.95 else dice.choice(("", "x", hook.token + "/", "%00"))
    head = f"{method} /hooks/{token}{dice.choice(QUERIES)} HTTP/1.1"
    text = "\r\n".join([head, *lines, "", ""]).encode("latin-1")
    return text + body, true


async def storm(gateway: Gateway, hooks: list[Hook], seed: int, number: int) -> Outcome:
    """Send many, on some connections; each answer is judged."""
    outcome = Outcome()
    lanes = 16
    await asyncio.gather(
        *(
            _lane(gateway, hooks, random.Random(seed + lane), number // lanes, outcome)
            for lane in range(lanes)
        )
    )
    return outcome


async def _lane(
    gateway: Gateway, hooks: list[Hook], dice: random.Random, number: int, outcome: Outcome
) -> None:
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    for _ in range(number):
        if writer is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.edge.port)
        assert reader is not None
        hook = dice.choice(hooks)
        sent, true = request(dice, hook)
        writer.write(sent)
        status, body, closed = await _answer(reader, head_only=sent.startswith(b"HEAD"))
        outcome.statuses[status] += 1
        _judge(status, body, true or hook.secret_id is None, sent, outcome)
        if closed:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


async def _answer(reader: asyncio.StreamReader, *, head_only: bool) -> tuple[int, bytes, bool]:
    async with asyncio.timeout(30):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = 0
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:") and not head_only:
                size = int(line[15:])
        body = await reader.readexactly(size)
    return int(head[9:12]), body, b"connection: close" in head


def _judge(status: int, body: bytes, true: bool, sent: bytes, outcome: Outcome) -> None:
    if status >= 500 and status != 501:
        outcome.faults.append(f"{status} for {sent[:300]!r}")
    try:
        answer = json.loads(body) if body else {}
    except ValueError:
        # A handshake's own words.
        return
    if not true and isinstance(answer, dict) and answer.get("status") in FORGED_SAFE:
        outcome.faults.append(f"a forgery was {answer['status']}: {sent[:300]!r}")
