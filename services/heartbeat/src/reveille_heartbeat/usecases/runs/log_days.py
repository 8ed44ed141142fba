"""Partitions for the output of the days to come, made ahead by whichever replica is first."""

from __future__ import annotations

from reveille_heartbeat.store.queries import Q
from reveille_runtime import logs
from reveille_runtime.db import Database

_log = logs.get_logger(__name__)
AHEAD = 7
# Seconds between looks; a week ahead, one may fail now and then.
EVERY = 3600.0
_COUNTED = 1000


class LogDays:
    """Makes them, and notices output that found none."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self) -> None:
        """Make what is missing; again it makes nothing."""
        async with self._db.transaction() as tx:
            made = await tx.fetchval(Q["make_log_days"], AHEAD)
        async with self._db.session() as tx:
            unplaced = await tx.fetchval(Q["unplaced_output"], _COUNTED)
        if made:
            _log.info("Days of output were made ahead.", action="log_days.made", days=made)
        if unplaced:
            _log.warning(
                "Output lies in the catch-all table: it goes by deletion, not with its day.",
                action="log_days.unplaced",
                chunks=unplaced,
                counted_up_to=_COUNTED,
            )
