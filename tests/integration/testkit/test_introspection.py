"""What is asked about types once for all tests: no more than what is the same everywhere."""

from __future__ import annotations

from reveille_testkit.database import TestDatabase


async def test_types_of_a_database_are_asked_for_by_each_connection(scratch: TestDatabase) -> None:
    admin = await scratch.connect("admin")
    await admin.execute("CREATE TYPE pair AS (a int, b int)")
    first = await scratch.connect("admin")
    assert tuple(await first.fetchval("SELECT ROW(1, 2)::pair")) == (1, 2)

    await admin.execute("ALTER TYPE pair ADD ATTRIBUTE c int")
    second = await scratch.connect("admin")
    assert tuple(await second.fetchval("SELECT ROW(1, 2, 3)::pair")) == (1, 2, 3)
