"""Signed contents that are being stored: a statement does not see what another has not committed.

This is for copies that are flagged: where none may be stored the index decides. Two replicas that
take copies of one content in the same moment both take theirs for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager


class Contents:
    """Lets one batch at a time store a content; batches of others do not wait."""

    def __init__(self) -> None:
        self._storing: dict[bytes, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def storing(self, keys: Collection[bytes]) -> AsyncIterator[None]:
        """Wait for whoever stores any of these, and have others wait in turn.

        Nobody waits who holds some already, so that no two can wait for each other.
        """
        while others := {self._storing[key] for key in keys if key in self._storing}:
            await asyncio.wait(others)
        done = asyncio.get_running_loop().create_future()
        self._storing.update(dict.fromkeys(keys, done))
        try:
            yield
        finally:
            for key in keys:
                del self._storing[key]
            done.set_result(None)
