"""A sender of webhooks over a real socket: exact bytes out, one answer back."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import select
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

EXAMPLE = Path(__file__).parents[2] / "examples" / "github" / "issues_opened.json"
PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gateway answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body, which is JSON."""
        document: dict[str, Any] = json.loads(self.body)
        return document


def signature(secret: str, body: bytes) -> str:
    """Sign as GitHub does."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def example_body() -> bytes:
    """Return the body of our example of `issues.opened`, as a sender would serialise it."""
    document = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def github_headers(
    body: bytes, secret: str | None, *, event: str = "issues", delivery: str = ""
) -> dict[str, str]:
    """Return all headers GitHub sends, with a true signature where there is a secret."""
    headers = {
        "Accept": "*/*",
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/44a2f11",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery or str(uuid4()),
        "X-GitHub-Hook-ID": "390000001",
        "X-GitHub-Hook-Installation-Target-ID": "710000002",
        "X-GitHub-Hook-Installation-Target-Type": "repository",
    }
    if secret is not None:
        headers["X-Hub-Signature-256"] = signature(secret, body)
    return headers


async def post(
    address: str, path: str, body: bytes, headers: Mapping[str, str], *, method: str = "POST"
) -> Answer:
    """Send one request and read its answer."""
    head = _head(method, path, {**headers, "Content-Length": str(len(body))})
    return await _exchange(address, head + body)


async def post_chunked(
    address: str, path: str, chunks: Iterable[bytes], headers: Mapping[str, str]
) -> tuple[Answer, int]:
    """Send a body in chunks until the answer comes; also tell how many chunks went out."""
    head = _head("POST", path, {**headers, "Transfer-Encoding": "chunked"})
    return await asyncio.to_thread(_send_until_answered, address, head, chunks)


def _send_until_answered(address: str, head: bytes, chunks: Iterable[bytes]) -> tuple[Answer, int]:
    """Use the socket itself: asyncio forgets what it could still read once a write has failed."""
    host, port = address.rsplit(":", 1)
    sent = 0
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        # A peer that has answered may have gone already: then there is still its answer to read.
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
            for chunk in chunks:
                if select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                sent += 1
        with connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            lines = iter(answer.readline, b"\r\n")
            found = _fields(line.decode("latin-1") for line in lines)
            return Answer(status, found, answer.read(int(found["content-length"]))), sent


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: hooks.example.com", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _exchange(address: str, request: bytes) -> Answer:
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        answering = asyncio.ensure_future(_read(reader))
        try:
            writer.write(request)
            await writer.drain()
            return await answering
        finally:
            answering.cancel()
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    headers = _fields(head[1:])
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(status, headers, body)


def _fields(lines: Iterable[str]) -> dict[str, str]:
    parts = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in parts}
