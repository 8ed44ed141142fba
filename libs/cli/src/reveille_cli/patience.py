"""Waiting for a service that went away while somebody followed something, as in a restart."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure

# How long a service may be away, and the pauses between two looks: each twice the one before.
LIMIT = 60.0
FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0


def _pause(seconds: float) -> None:
    Event().wait(seconds)


class Patience:
    """Bears a service's absence for a minute, counted from its last answer.

    What never answered is not waited for: nothing runs there, and its caller is told at once.
    """

    def __init__(
        self, now: Callable[[], float] = monotonic, pause: Callable[[float], None] = _pause
    ) -> None:
        self._now = now
        self._pause = pause
        self._heard = False
        self._away_since: float | None = None
        self._next = FIRST_PAUSE

    def answered(self) -> None:
        """Begin anew: the service is there."""
        self._heard, self._away_since, self._next = True, None, FIRST_PAUSE

    def bear(self, failure: Failure) -> None:
        """Wait for the next try, or raise the failure when it is none of this kind, or too long."""
        now = self._now()
        if self._away_since is None:
            self._away_since = now
        left = self._away_since + LIMIT - now
        if failure.exit_code is not ExitCode.UNAVAILABLE or not self._heard or left <= 0:
            raise failure
        self._pause(min(self._next, left))
        self._next = min(2 * self._next, _LONGEST_PAUSE)
