"""Contents that are being stored: who has the same waits, and nobody else does."""

from __future__ import annotations

import asyncio

import pytest

from reveille_webhook.usecases.contents import Contents


class Storing:
    """A batch on its way; it ends when it is told to."""

    def __init__(self, contents: Contents, *keys: bytes) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.task = asyncio.ensure_future(self._store(contents, keys))

    async def _store(self, contents: Contents, keys: tuple[bytes, ...]) -> None:
        async with contents.storing(set(keys)):
            self.begun.set()
            await self.end.wait()


async def turns() -> None:
    """Let everybody go as far as they can without us."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_batch_at_a_time_stores_a_content() -> None:
    contents = Contents()
    one, same, other = (Storing(contents, *keys) for keys in ((b"a", b"b"), (b"b", b"c"), (b"d",)))
    await turns()
    assert [each.begun.is_set() for each in (one, same, other)] == [True, False, True]

    third = Storing(contents, b"a", b"c")
    one.end.set()
    await turns()
    # Whoever waits holds nothing: of these two one goes first.
    assert sorted([same.begun.is_set(), third.begun.is_set()]) == [False, True]

    for each in (same, other, third):
        each.end.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*(each.task for each in (one, same, other, third)))
    assert contents._storing == {}


async def test_a_batch_that_fails_or_is_given_up_is_no_longer_waited_for() -> None:
    contents = Contents()
    with pytest.raises(RuntimeError):
        async with contents.storing({b"a"}):
            raise RuntimeError
    held = Storing(contents, b"a")
    waits = Storing(contents, b"a")
    await turns()
    given_up = Storing(contents, b"a")
    await turns()
    given_up.task.cancel()
    held.task.cancel()
    await turns()

    assert waits.begun.is_set()
    waits.end.set()
    await waits.task
    assert contents._storing == {}
