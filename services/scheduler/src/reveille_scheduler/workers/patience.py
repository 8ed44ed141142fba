"""Steps of loops that wait for the database, and go on as soon as it is back.

A loop backs off further with each failure, which is right for a step with a bug. After a long
outage of the database, though, every second of such a pause makes something late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reveille_runtime import logs
from reveille_runtime.sqlstate import is_transient

PAUSE_SECONDS = 1.0
Step = Callable[[], Awaitable[float | None]]
_log = logs.get_logger(__name__)


def patiently(name: str, step: Step) -> Step:
    """Make a step look for the database every second while that is away."""

    async def patient() -> float | None:
        try:
            return await step()
        except Exception as error:
            if not is_transient(error):
                raise
            _log.warning(
                "The database does not answer; it is asked again.",
                action="loop.waits_for_database",
                loop=name,
                cause=type(error).__name__,
            )
            return PAUSE_SECONDS

    return patient
