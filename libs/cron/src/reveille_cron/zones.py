"""Time zones by IANA name, all from the one pinned edition of the tz database.

The operating system's own files are not read, so that every replica plans alike.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from reveille_cron.errors import CronError, Reason, quoted

TZDATA_VERSION: Final = version("tzdata")
_UTC_NAME: Final = "UTC"
# The database's own stand-in for a machine whose zone was never set.
_NOT_A_PLACE: Final = "Factory"


def zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name; the empty name is UTC.

    Raises:
        CronError: With reason `invalid_timezone`.
    """
    wanted = name or _UTC_NAME
    if wanted not in zone_names():
        raise CronError(
            reason=Reason.INVALID_TIMEZONE,
            field="time_zone",
            message=f"{quoted(name)} is not a time zone",
            hint=_hint(name),
        )
    return _load(wanted)


@cache
def zone_names() -> frozenset[str]:
    """Return every accepted name."""
    listed = files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(listed) - {_NOT_A_PLACE}


def render_local(instant: datetime, time_zone: ZoneInfo) -> str:
    """Return the date an instant has in a zone, as `YYYY-MM-DD`."""
    if instant.utcoffset() is None:
        raise ValueError("an instant carries its zone")
    return instant.astimezone(UTC).astimezone(time_zone).date().isoformat()


@cache  # at most one entry per accepted name
def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as compiled:
        return ZoneInfo.from_file(compiled, key=name)


def _hint(name: str) -> str:
    asked = name[:64].strip().casefold()
    by_case = {known.casefold(): known for known in zone_names()}
    close = [asked] if asked in by_case else difflib.get_close_matches(asked, by_case, 1, 0.75)
    if close:
        return f"did you mean {by_case[close[0]]}?"
    return "use an IANA name such as Europe/Berlin, or UTC"
