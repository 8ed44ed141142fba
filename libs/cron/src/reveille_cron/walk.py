"""The search for matching wall-clock minutes, forwards and backwards, without a time zone."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime, timedelta

from reveille_cron.expression import Expression

MINUTE = timedelta(minutes=1)


def first_match(expression: Expression, start: datetime, stop: datetime) -> datetime | None:
    """Return the first matching minute at or after `start` and before `stop`."""
    start = ceil_minute(start)
    found = _first_day(expression, start.year, start.month, start.day, stop)
    if found == (start.year, start.month, start.day):
        clock = _clock_at_or_after(expression, start.hour, start.minute)
        if clock is not None:
            match = start.replace(hour=clock[0], minute=clock[1])
            return match if match < stop else None
        found = _first_day(expression, start.year, start.month, start.day + 1, stop)
    if found is None:
        return None
    match = datetime(*found, expression.hours[0], expression.minutes[0])  # noqa: DTZ001
    return match if match < stop else None


def last_match(expression: Expression, start: datetime, stop: datetime) -> datetime | None:
    """Return the last matching minute at or after `start` and before `stop`."""
    last = ceil_minute(stop) - MINUTE
    found = _last_day(expression, last.year, last.month, last.day, start)
    if found == (last.year, last.month, last.day):
        clock = _clock_at_or_before(expression, last.hour, last.minute)
        if clock is not None:
            match = last.replace(hour=clock[0], minute=clock[1])
            return match if match >= start else None
        found = _last_day(expression, last.year, last.month, last.day - 1, start)
    if found is None:
        return None
    match = datetime(*found, expression.hours[-1], expression.minutes[-1])  # noqa: DTZ001
    return match if match >= start else None


def ceil_minute(wall: datetime) -> datetime:
    """Return the first whole minute at or after a wall time."""
    whole = wall.replace(second=0, microsecond=0)
    return whole if whole == wall else whole + MINUTE


def _first_day(
    expression: Expression, year: int, month: int, day: int, stop: datetime
) -> tuple[int, int, int] | None:
    while (year, month) <= (stop.year, stop.month):
        named = expression.days(year, month) >> day - 1
        if named:
            return year, month, day + (named & -named).bit_length() - 1
        year, month, day = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
    return None


def _last_day(
    expression: Expression, year: int, month: int, day: int, start: datetime
) -> tuple[int, int, int] | None:
    while (year, month) >= (start.year, start.month):
        named = expression.days(year, month) & (1 << day) - 1
        if named:
            return year, month, named.bit_length()
        year, month, day = (year, month - 1, 31) if month > 1 else (year - 1, 12, 31)
    return None


def _clock_at_or_after(expression: Expression, hour: int, minute: int) -> tuple[int, int] | None:
    hours, minutes = expression.hours, expression.minutes
    index = bisect_left(hours, hour)
    if index < len(hours) and hours[index] == hour:
        later = bisect_left(minutes, minute)
        if later < len(minutes):
            return hour, minutes[later]
        index += 1
    return (hours[index], minutes[0]) if index < len(hours) else None


def _clock_at_or_before(expression: Expression, hour: int, minute: int) -> tuple[int, int] | None:
    hours, minutes = expression.hours, expression.minutes
    index = bisect_left(hours, hour + 1) - 1
    if index >= 0 and hours[index] == hour:
        earlier = bisect_left(minutes, minute + 1) - 1
        if earlier >= 0:
            return hour, minutes[earlier]
        index -= 1
    return (hours[index], minutes[-1]) if index >= 0 else None
