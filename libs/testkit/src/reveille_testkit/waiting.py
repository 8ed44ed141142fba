"""Waiting for what another process does, where that process cannot signal us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

# Short beside what is waited for, long beside the cost of looking.
_PAUSE = 0.05


async def eventually(
    look: Callable[[], Awaitable[T]],
    what: str,
    *,
    until: Callable[[T], object] = bool,
    timeout: float = 20.0,
) -> T:
    """Look until what is seen is as wanted, and return it.

    Raises:
        AssertionError: it was not so in time; the message tells what was seen last.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        seen = await look()
        if until(seen):
            return seen
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(f"{what}: not within {timeout:g} s; last seen: {seen!r}")
        await asyncio.sleep(_PAUSE)
