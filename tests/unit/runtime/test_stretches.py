"""Removing in stretches: how many, for how long, and whether it came to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reveille_runtime.stretches import Stretches


def stretches(clock: Iterator[float], seen: list[str]) -> Stretches:
    return Stretches(2, after=lambda: seen.append("after"), patience=10, monotonic=clock.__next__)


async def test_a_short_stretch_is_the_last() -> None:
    counts, seen = iter([2, 2, 1]), list[str]()
    made = stretches(iter([0.0, 1.0, 2.0, 3.0]), seen)

    async def stretch() -> int:
        return next(counts)

    assert await made.all_rows(stretch) == 5
    assert made.finished
    assert seen == ["after"] * 3


@pytest.mark.parametrize(("clock", "removed"), [([0.0, 9.9, 10.0], 2), ([0.0, 10.0], 0)])
async def test_none_begins_when_the_time_is_over(clock: list[float], removed: int) -> None:
    made = stretches(iter(clock), [])

    async def stretch() -> int:
        return 2

    assert await made.all_rows(stretch) == removed
    assert not made.finished


async def test_what_was_not_finished_once_stays_so() -> None:
    made = stretches(iter([0.0, 1.0, 10.0, 9.0]), [])

    async def endless() -> int:
        return 2

    async def nothing() -> int:
        return 0

    assert await made.all_rows(endless) == 2
    assert await made.all_rows(nothing) == 0
    assert not made.finished
