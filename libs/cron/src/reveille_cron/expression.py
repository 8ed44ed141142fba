"""A parsed expression: which minutes of which days it names, without a time zone."""

from __future__ import annotations

import calendar
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from reveille_cron.errors import invalid_cron
from reveille_cron.expand import expand
from reveille_cron.fields import DAY_OF_MONTH
from reveille_cron.grammar import Field, LastDay, NthWeekday, read

_MONTH_LENGTHS: Final = (28, 29, 30, 31)
# Bits 0, 7, 14, 21 and 28: the days that share a weekday with the first of the month.
_WEEKLY: Final = sum(1 << day for day in range(0, 35, 7))


@dataclass(frozen=True, slots=True)
class Expression:
    """An accepted expression. Two that share `text`, the canonical spelling, are equal.

    Attributes:
        text: Five fields, numbers for names and macros, single spaces; parses to itself.
        minutes: The minutes it names, ascending.
        hours: The hours it names, ascending.
        months: The months it names.
        wildcard: Whether the minute or the hour field begins with `*`. Such a job follows the
            wall clock through clock changes; every other job is made up for, or run once.
    """

    text: str
    minutes: tuple[int, ...] = field(compare=False)
    hours: tuple[int, ...] = field(compare=False)
    months: frozenset[int] = field(compare=False)
    wildcard: bool = field(compare=False)
    _day_masks: tuple[int, ...] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def days(self, year: int, month: int) -> int:
        """Return the days of a month it names, day d as bit d - 1."""
        if month not in self.months:
            return 0
        length = 28 + _EXTRA_DAYS[month] + (month == 2 and calendar.isleap(year))
        return self._day_masks[date(year, month, 1).weekday() * 4 + length - 28]


_EXTRA_DAYS: Final = (0, 3, 0, 3, 2, 3, 2, 3, 3, 2, 3, 2, 3)


def parse(expression: str) -> Expression:
    """Read a cron expression.

    Raises:
        CronError: With reason `invalid_cron`: not this package's grammar, or a date that
            never comes.
    """
    fields = read(expression)
    minute, hour, day, _, weekday = fields
    minutes, hours, days, months, weekdays = expand(fields)
    parsed = Expression(
        text=" ".join(map(str, fields)),
        minutes=minutes,
        hours=hours,
        months=frozenset(months),
        wildcard=minute.starred or hour.starred,
        _day_masks=_day_masks(day, days, weekday, weekdays),
    )
    # Every kind of year occurs within the search horizon; 2000 to 2027 holds each of them.
    if not any(parsed.days(year, month) for month in months for year in range(2000, 2028)):
        raise invalid_cron(
            DAY_OF_MONTH.name,
            "no such date ever comes, so it would never fire",
            "name a day that the months have, or L for the last one",
        )
    return parsed


def _day_masks(
    day: Field, days: Collection[int], weekday: Field, weekdays: Collection[int]
) -> tuple[int, ...]:
    """Work out the named days for each kind of month: its first weekday and its length.

    Debian's rule joins the two day fields: if either begins with `*`, a day must match both,
    else one is enough.
    """
    both = day.starred or weekday.starred
    named = sum(1 << (number - 1) for number in days)
    last_day = any(isinstance(item, LastDay) for item in day.items)
    nths = [item for item in weekday.items if isinstance(item, NthWeekday)]
    masks = []
    for first in range(1, 8):  # Monday to Sunday, in cron's numbers (Sunday twice, taken mod 7)
        weekly = 0
        for number in weekdays:
            weekly |= _WEEKLY << (number - first) % 7
        for item in nths:
            weekly |= 1 << (item.weekday - first) % 7 + 7 * (item.nth - 1)
        for length in _MONTH_LENGTHS:
            monthly = named | (1 << length - 1 if last_day else 0)
            joined = monthly & weekly if both else monthly | weekly
            masks.append(joined & (1 << length) - 1)
    return tuple(masks)
