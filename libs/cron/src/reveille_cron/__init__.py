"""The one cron evaluator: validation, preview, planning and dates all ask it.

>>> from datetime import UTC, datetime
>>> weekdays = Schedule(parse("0 9 * * MON-FRI"), zone("Europe/Berlin"))
>>> weekdays.next(datetime(2026, 3, 27, 12, tzinfo=UTC)).isoformat()
'2026-03-30T07:00:00+00:00'
"""

from __future__ import annotations

from reveille_cron.errors import CronError, Reason
from reveille_cron.expression import Expression, parse
from reveille_cron.schedule import HORIZON_YEARS, Schedule
from reveille_cron.zones import TZDATA_VERSION, render_local, zone, zone_names

__all__ = [
    "HORIZON_YEARS",
    "TZDATA_VERSION",
    "CronError",
    "Expression",
    "Reason",
    "Schedule",
    "parse",
    "render_local",
    "zone",
    "zone_names",
]
