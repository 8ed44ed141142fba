"""Reading a set page by page: rows that nobody can do anything about hide none behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg

from reveille_runtime.db import Database
from reveille_runtime.queries import Query

PAGE = 200
_FIRST = UUID(int=0)


async def pages(
    db: Database, query: Query, key: str, *arguments: Any
) -> AsyncIterator[list[asyncpg.Record]]:
    """Give page after page; the query's last two parameters are the last key seen and a limit."""
    after = _FIRST
    while True:
        async with db.session() as tx:
            page = await tx.fetch(query, *arguments, after, PAGE)
        if page:
            yield page
        if len(page) < PAGE:
            return
        after = page[-1][key]
