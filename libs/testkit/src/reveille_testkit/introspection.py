"""What a test process has asked about built-in types, it asks no other connection again.

Each connection of a pool asks the server what arrays are made of, for about 10 ms. Tests open
thousands of connections to one server, and its built-in types never change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import asyncpg

# Types with higher ids are made by databases, and differ between them.
_FIRST_OF_USERS: Final = 16384
Ask = Callable[[Any, Collection[int], Any], Awaitable[tuple[Any, Any]]]


def ask_once() -> None:
    """Have every connection of this process share what the first of them was told."""
    name = "_introspect_types"
    ask: Ask = getattr(asyncpg.Connection, name)
    told: dict[frozenset[int], tuple[Any, Any]] = {}

    async def remember(
        self: Any, typeoids: Collection[int], timeout: float | None
    ) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if asked not in told:
            answer = await ask(self, typeoids, timeout)
            if max(asked) >= _FIRST_OF_USERS:
                return answer
            told[asked] = answer
        return told[asked]

    setattr(asyncpg.Connection, name, remember)
