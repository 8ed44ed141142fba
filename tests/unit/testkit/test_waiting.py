"""Waiting for another process: until it is as wanted, and no longer."""

from __future__ import annotations

import itertools

import pytest

from reveille_testkit.waiting import eventually


async def test_it_looks_until_it_is_as_wanted() -> None:
    numbers = itertools.count()

    async def look() -> int:
        return next(numbers)

    assert await eventually(look, "three", until=lambda seen: seen == 2) == 2


async def test_it_tells_what_it_saw_last() -> None:
    async def look() -> str:
        return "a shadow"

    with pytest.raises(AssertionError, match="light: not within 0 s; last seen: 'a shadow'"):
        await eventually(look, "light", until=lambda seen: seen == "light", timeout=0)
