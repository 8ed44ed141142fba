"""The statements of runs as bare batched SQL: what the database could do without a service."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg

from reveille_heartbeat.store.queries import Q as HEARTBEAT
from reveille_runtime.feed.log import Q as FEED
from reveille_runtime.ids import new_id
from reveille_testkit.database import TestDatabase

BATCH = 200
LEASE = timedelta(seconds=30)


class BareBatch:
    """The statements of one batch of runs, with their arguments made beforehand."""

    def __init__(self, agents: list[asyncpg.Record], number: int) -> None:
        self.agents = [agents[(number + at) % len(agents)]["agent_id"] for at in range(BATCH)]
        self.spaces = [agents[0]["workspace_id"]] * BATCH
        self.wakeups = [new_id() for _ in range(BATCH)]
        self.runs = [new_id() for _ in range(BATCH)]
        self.tokens = [uuid4() for _ in range(BATCH)]
        self.keys = [f"bare:{number}:{at}" for at in range(BATCH)]
        self.carriers = [{"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}] * BATCH

    async def enqueue(self, connection: Any) -> None:
        """A wish: key, wakeup, payload, run, event."""
        none: list[Any] = [None] * BATCH
        empty, zero = [""] * BATCH, [0] * BATCH
        async with connection.transaction():
            await _call(connection, "take_occurrences", self.spaces, self.keys, self.wakeups, none)
            await _call(
                connection,
                "insert_wakeups",
                self.wakeups,
                self.spaces,
                self.agents,
                ["automation"] * BATCH,
                ["autopilot_run"] * BATCH,
                ["Look at it"] * BATCH,
                none,
                ["queued"] * BATCH,
                empty,
                empty,
                ["service:autopilot"] * BATCH,
                none,
                self.keys,
                empty,
                ["bench"] * BATCH,
                ["bench"] * BATCH,
                empty,
                none,
                self.runs,
                self.carriers,
                [False] * BATCH,
                none,
                ["service"] * BATCH,
                ["autopilot"] * BATCH,
                empty,
                ["{}"] * BATCH,
                [False] * BATCH,
                [{}] * BATCH,
                zero,
                zero,
            )
            await _call(
                connection,
                "insert_payloads",
                self.wakeups,
                ["Please look."] * BATCH,
                ["application/json"] * BATCH,
                [b'{"action": "opened"}'] * BATCH,
                empty,
                [{}] * BATCH,
            )
            await _call(
                connection,
                "insert_runs",
                self.runs,
                self.spaces,
                self.agents,
                self.wakeups,
                none,
                [1] * BATCH,
                none,
                empty,
                [2] * BATCH,
                [4] * BATCH,
                ["bench"] * BATCH,
                self.carriers,
                self.carriers,
                none,
            )
            await self._tell(connection, "run.queued")

    async def claim(self, connection: Any) -> None:
        """A claim: run, wakeup, history, event."""
        async with connection.transaction():
            await _call(connection, "claim_runs", self.runs, self.tokens, "bare", "here", LEASE)
            await _call(connection, "claim_wakeups", self.wakeups)
            await self._note(connection, 1, "run.claimed")
            await self._tell(connection, "run.status")

    async def end(self, connection: Any) -> None:
        """An end: output, run, wakeup, history, events."""
        none: list[Any] = [None] * BATCH
        empty = [""] * BATCH
        async with connection.transaction():
            await _call(
                connection,
                "append_log",
                self.runs,
                self.tokens,
                ["stdout"] * BATCH,
                [0] * BATCH,
                [b"echo: Look at it (application/json, 20 bytes)\n"] * BATCH,
            )
            await _call(
                connection,
                "end_runs",
                self.runs,
                self.tokens,
                ["succeeded"] * BATCH,
                empty,
                empty,
                [0] * BATCH,
                ["echo: Look at it"] * BATCH,
                [b'{"summary":"echo: Look at it","result":{"payload_bytes":20}}'] * BATCH,
                empty,
                none,
                ["not_applicable"] * BATCH,
                [False] * BATCH,
                [2] * BATCH,
                [True] * BATCH,
                none,
            )
            await _call(
                connection, "settle_claimed", self.wakeups, ["completed"] * BATCH, empty, empty
            )
            await self._note(connection, 2, "run.succeeded")
            await self._tell(connection, "run.status")
            await self._tell(connection, "wakeup.settled")

    async def _note(self, connection: Any, seq: int, kind: str) -> None:
        await _call(
            connection,
            "insert_run_events",
            self.runs,
            [seq] * BATCH,
            [kind] * BATCH,
            [f"{kind} by the bench"] * BATCH,
            [{"reason": "", "exit_code": 0}] * BATCH,
        )

    async def _tell(self, connection: Any, kind: str) -> None:
        facts = [
            {"run_id": str(run), "wakeup_id": str(wakeup), "state": "x", "attempt": 1, "reason": ""}
            for run, wakeup in zip(self.runs, self.wakeups, strict=True)
        ]
        await connection.execute(
            FEED["feed_append"].sql,
            [kind] * BATCH,
            self.spaces,
            self.keys,
            [str(run) for run in self.runs],
            facts,
            self.carriers,
        )


async def _call(connection: Any, name: str, *arguments: object) -> None:
    await connection.execute(HEARTBEAT[name].sql, *arguments)


async def bare_limit(database: TestDatabase, agents: list[asyncpg.Record], runs: int) -> float:
    """The same statements without a service: three transactions a batch, four connections."""
    batches = [BareBatch(agents, number) for number in range(runs // BATCH)]
    connections = [await database.connect("reveille_heartbeat_app") for _ in range(4)]

    async def work(connection: Any) -> None:
        while batches:
            batch = batches.pop()
            await batch.enqueue(connection)
            await batch.claim(connection)
            await batch.end(connection)

    began = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    return runs / (time.perf_counter() - began)
