"""Work that cannot outlive the process is interrupted when it stops, and told apart from a loss."""

from __future__ import annotations

import asyncio

import pytest

from reveille_heartbeat.adapters.contract import AdapterResult
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.pipeline.interrupts import Interrupts

DONE = AdapterResult(End(EndKind.EXITED, 0))


async def done() -> AdapterResult:
    return DONE


async def test_what_is_at_work_is_interrupted_and_nothing_else_begins() -> None:
    interrupts = Interrupts()
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def endless() -> AdapterResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return DONE

    assert await interrupts.run(done()) == DONE
    working = asyncio.create_task(interrupts.run(endless()))
    await begun.wait()
    interrupts.stop()

    assert (await working).end.kind is EndKind.INTERRUPTED
    assert cleaned.is_set()
    assert not working.cancelled()
    assert (await interrupts.run(done())).end.kind is EndKind.INTERRUPTED


async def test_a_cancellation_by_somebody_else_is_heard() -> None:
    interrupts = Interrupts()
    begun = asyncio.Event()

    async def endless() -> AdapterResult:
        begun.set()
        await asyncio.Event().wait()
        return DONE

    alone = asyncio.create_task(interrupts.run(endless()))
    await begun.wait()
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone

    begun.clear()
    both = asyncio.create_task(interrupts.run(endless()))
    await begun.wait()
    both.cancel()
    interrupts.stop()
    with pytest.raises(asyncio.CancelledError):
        await both
