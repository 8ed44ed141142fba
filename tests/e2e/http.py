"""A sender of webhooks over a real socket: exact bytes out, one answer back."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
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
    return await _exchange(
        address, _head(method, path, {**headers, "Content-Length": str(len(body))}), [body]
    )


async def post_chunked(
    address: str, path: str, chunks: Iterable[bytes], headers: Mapping[str, str]
) -> tuple[Answer, int]:
    """Send a body in chunks until the answer comes; also tell how many chunks went out."""
    sent = 0

    def counted() -> Iterable[bytes]:
        nonlocal sent
        for chunk in chunks:
            sent += 1
            yield f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"

    head = _head("POST", path, {**headers, "Transfer-Encoding": "chunked"})
    return await _exchange(address, head, counted()), sent


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: hooks.example.com", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _exchange(address: str, head: bytes, parts: Iterable[bytes]) -> Answer:
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        answering = asyncio.ensure_future(_read(reader))
        try:
            writer.write(head)
            for part in parts:
                if answering.done():
                    break
                writer.write(part)
                await writer.drain()
                # Draining does not let the answer in while the socket takes all we have.
                await asyncio.sleep(0)
            return await answering
        except ConnectionError:
            # The server has closed its side; what it said before counts.
            return await answering
        finally:
            answering.cancel()
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(status, headers, body)
