"""A sender of webhooks that is not the limit: many connections, each asks when it was answered.

`python hooks_load.py JSON` with host, port, path, secret, connections, seconds, body_bytes, mode
(`distinct`, `bad` signatures, `same` delivery) and, for an open loop, `rate` in requests a second.
Prints one JSON line: how often each status and each word came back, latencies, ids of what is safe.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import json
import re
import sys
import time
from collections import Counter
from typing import Any

import uvloop

from reveille_runtime.streams import whole

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_read = json.JSONDecoder().decode
_HEAD = (
    "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    "X-GitHub-Event: push\r\nContent-Length: {size}\r\n"
)


# More than is taken of anything here, within what fits into memory.
_MOST_A_SECOND = 6_000
_MOST_BYTES = 128 << 20


class Load:
    """What is sent, and what came back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.secret = str(plan["secret"]).encode()
        self.head = _HEAD.format(
            path=plan["path"], host=plan["host"], size=plan["body_bytes"]
        ).encode()
        self.statuses: Counter[int] = Counter()
        self.words: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.safe: list[str] = []
        self.broken = 0
        self.number = 0
        self.until = 0.0
        self.next_at = 0.0
        self.prepared: list[bytes] = []

    def prepare(self) -> None:
        """Sign before the clock runs what a fast receiver could take: it is not what is measured.

        An open loop sends more than fits into memory; it signs as it goes.
        """
        if not self.plan.get("rate"):
            most = min(_MOST_A_SECOND * self.plan["seconds"], _MOST_BYTES / self.plan["body_bytes"])
            self.prepared = [self.made() for _ in range(int(most))]
            self.prepared.reverse()

    def request(self) -> bytes:
        """Give the next request."""
        return self.prepared.pop() if self.prepared else self.made()

    def made(self) -> bytes:
        """Make a request; each body is another one."""
        self.number += 1
        mode = self.plan["mode"]
        number = 0 if mode == "same" else self.number
        begin = b'{"number":%d,"run":"%s","text":"' % (number, str(self.plan["run"]).encode())
        body = begin + b"x" * (self.plan["body_bytes"] - len(begin) - 2) + b'"}'
        key = b"another secret entirely" if mode == "bad" else self.secret
        signature = hmac.new(key, body, hashlib.sha256).hexdigest().encode()
        delivery = b"%s-%d" % (str(self.plan["run"]).encode(), number)
        return b"".join(
            (
                self.head,
                b"X-GitHub-Delivery: ",
                delivery,
                b"\r\nX-Hub-Signature-256: sha256=",
                signature,
                b"\r\n\r\n",
                body,
            )
        )

    def due(self) -> float | None:
        """Give the moment of the next request, None when there is none any more."""
        now = time.perf_counter()
        if now >= self.until:
            return None
        rate = self.plan.get("rate")
        if not rate:
            return now
        self.next_at = max(self.next_at, now - 1.0) + 1.0 / rate
        return self.next_at


class Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load, ended: asyncio.Future[None]) -> None:
        self.load = load
        self.ended = ended
        self.received = b""
        self.began = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        due = self.load.due()
        if due is None:
            self.transport.close()
            return
        wait = due - time.perf_counter()
        if wait > 0.001:
            asyncio.get_running_loop().call_later(wait, self.write)
        else:
            self.write()

    def write(self) -> None:
        request = self.load.request()
        self.began = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = _LENGTH.search(head)
        if length is not None and len(rest) < int(length[1]):
            return
        self.received = b""
        load = self.load
        load.latencies.append(time.perf_counter() - self.began)
        status = int(head[9:12])
        load.statuses[status] += 1
        answer = _read(rest.decode()) if rest else {}
        word = answer.get("status", "")
        load.words[word] += 1
        if word in {"accepted", "queued"}:
            load.safe.append(answer["delivery_id"])
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.load.broken += 1
        if not self.ended.done():
            self.ended.set_result(None)


async def main(plan: dict[str, Any]) -> dict[str, Any]:
    load = Load(plan)
    load.prepare()
    loop = asyncio.get_running_loop()
    load.until = time.perf_counter() + plan["seconds"]
    began = time.perf_counter()

    async def hold() -> None:
        # A connection that is refused or broken is made anew, as senders do.
        while time.perf_counter() < load.until:
            ended: asyncio.Future[None] = loop.create_future()
            try:
                made = functools.partial(Sender, load, ended)
                await loop.create_connection(made, plan["host"], plan["port"])
            except OSError:
                load.broken += 1
                await asyncio.sleep(0.05)
                continue
            await ended

    await asyncio.gather(*(hold() for _ in range(plan["connections"])))
    spent = time.perf_counter() - began
    ordered = sorted(load.latencies) or [0.0]

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {
        "seconds": spent,
        "answered": len(load.latencies),
        "broken": load.broken,
        "statuses": {str(status): count for status, count in load.statuses.items()},
        "words": dict(load.words),
        "p50": at(0.5),
        "p99": at(0.99),
        "safe": load.safe if plan.get("ids") else len(load.safe),
    }


if __name__ == "__main__":
    found = json.dumps(uvloop.run(main(json.loads(sys.argv[1]))))
    print(found, file=whole(sys.stdout))
