"""A loop that waits for the database goes on soon after it is back; a bug still backs off."""

from __future__ import annotations

import pytest

from reveille_scheduler.workers.patience import PAUSE_SECONDS, patiently


async def test_an_outage_is_waited_out_second_by_second() -> None:
    async def away() -> float | None:
        raise ConnectionRefusedError

    assert [await patiently("planner", away)() for _ in range(3)] == [PAUSE_SECONDS] * 3


async def test_what_is_no_outage_is_raised() -> None:
    async def broken() -> float | None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await patiently("planner", broken)()


async def test_the_answer_of_the_step_is_passed_on() -> None:
    async def more() -> float | None:
        return 0

    assert await patiently("planner", more)() == 0
