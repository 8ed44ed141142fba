"""Tell when a schedule fires next, by the evaluator that planning uses."""

from __future__ import annotations

from datetime import datetime

from reveille_cron import CronError, Schedule, parse, zone
from reveille_runtime.db import Database
from reveille_runtime.errors import InvalidArgument


class Preview:
    """Looks ahead on a schedule."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(
        self, cron: str, time_zone: str, after: datetime | None, count: int
    ) -> list[datetime]:
        """Give up to `count` instants after `after`, or after now.

        Raises:
            InvalidArgument: the expression or the zone is refused; the field is named.
        """
        try:
            schedule = Schedule(parse(cron), zone(time_zone))
        except CronError as error:
            field = "time_zone" if error.field == "time_zone" else "cron"
            raise InvalidArgument.of(field, str(error), error.reason.upper()) from error
        start = await self._database.now() if after is None else after
        return schedule.upcoming(start, count)
