"""Fixtures for tests over a server that other tests use at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from reveille_runtime.db import Database
from reveille_runtime.queries import Query
from reveille_testkit.waiting import eventually

_BEGUN = Query("begun", "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", "How far.")
_ENDED = Query("ended", "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", "How far.")

Settled = Callable[..., Awaitable[None]]


@pytest.fixture
def settled() -> Settled:
    """Wait until no transaction of the whole server is older than now, or than the given one."""

    async def wait(db: Database, xid: int | None = None) -> None:
        async with db.session() as tx:
            target = await tx.fetchval(_BEGUN) if xid is None else xid
            await eventually(
                lambda: tx.fetchval(_ENDED),
                "older transactions end",
                until=lambda horizon: horizon >= target,
            )

    return wait
