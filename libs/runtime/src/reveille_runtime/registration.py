"""What one service tells another about itself, until it is heard, and now and then again.

The other's database may be restored to a time before it was told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from reveille_runtime import logs
from reveille_runtime.backoff import Backoff
from reveille_runtime.errors import DomainError

AGAIN_SECONDS = 300.0
RETRY = Backoff(first=1.0, longest=15.0)
_log = logs.get_logger(__name__)


class Registration(ABC):
    """Keeps one registration; `step` is the step of a loop."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told = False
        self._failures = 0

    async def registered(self) -> None:
        """Tell it unless this process has done so. Raises DomainError where it is not taken."""
        if not self._told:
            await self.register()

    async def register(self) -> None:
        """Tell it. Raises DomainError where it is not taken."""
        await self._tell()
        self._told = True

    async def step(self) -> float:
        """Tell it, or repeat it; gives the pause until the next time."""
        try:
            await self.register()
        except DomainError as error:
            _log.warning(
                "A registration was not taken yet; it is sent again.",
                action="registration.not_taken",
                registration=self._what,
                cause=error.message,
            )
            self._failures += 1
            return RETRY.delay(self._failures, self._what)
        self._failures = 0
        return AGAIN_SECONDS

    @abstractmethod
    async def _tell(self) -> None:
        """Make the call."""
