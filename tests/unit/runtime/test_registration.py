"""A registration is sent until it is taken, less and less often, and now and then again."""

from __future__ import annotations

import pytest

from reveille_runtime.errors import DomainError, InvalidArgument, Unavailable
from reveille_runtime.registration import AGAIN_SECONDS, RETRY, Registration


class Told(Registration):
    """Notes how often it was told, and is refused as long as a test wants."""

    def __init__(self) -> None:
        super().__init__("what")
        self.calls = 0
        self.refusal: DomainError | None = None

    async def _tell(self) -> None:
        self.calls += 1
        if self.refusal is not None:
            raise self.refusal


async def test_it_is_sent_again_soon_after_a_refusal_and_rarely_once_it_is_taken() -> None:
    told = Told()
    told.refusal = Unavailable("NOT_SERVING", "not yet")
    pauses = [await told.step() for _ in range(12)]
    assert pauses == sorted(pauses[:4]) + pauses[4:]
    assert pauses[0] <= RETRY.first
    assert all(pause <= RETRY.longest for pause in pauses)

    told.refusal = None
    assert await told.step() == AGAIN_SECONDS
    told.refusal = Unavailable("NOT_SERVING", "away again")
    assert await told.step() <= RETRY.first


async def test_who_needs_it_tells_it_once_and_hears_why_it_cannot_be() -> None:
    told = Told()
    told.refusal = InvalidArgument.of("job.handler", "is not known", "INVALID_FIELD")
    with pytest.raises(InvalidArgument):
        await told.registered()
    told.refusal = None
    await told.registered()
    await told.registered()
    assert told.calls == 2
