"""The five fields of an expression: their order, bounds and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN",
                      "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")  # fmt: skip
WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field: `low` to `high` are its values, `alias` one more that means `low`."""

    name: str
    low: int
    high: int
    names: Mapping[str, int]
    alias: int | None = None

    @property
    def size(self) -> int:
        """How many different values the field has."""
        return self.high - self.low + 1

    @property
    def is_day(self) -> bool:
        """Whether the field picks days, alone or together with the other day field."""
        return self is DAY_OF_MONTH or self is DAY_OF_WEEK

    @property
    def accepts(self) -> str:
        """The values the field takes, for hints."""
        named = f" or {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else ""
        alias = f" (or {self.alias} for {self.low})" if self.alias is not None else ""
        return f"{self.low}-{self.high}{alias}{named}"


MINUTE: Final = FieldSpec("minute", 0, 59, {})
HOUR: Final = FieldSpec("hour", 0, 23, {})
DAY_OF_MONTH: Final = FieldSpec("day_of_month", 1, 31, {})
MONTH: Final = FieldSpec(
    "month", 1, 12, {name: number for number, name in enumerate(MONTH_NAMES, start=1)}
)
DAY_OF_WEEK: Final = FieldSpec(
    "day_of_week", 0, 6, {name: number for number, name in enumerate(WEEKDAY_NAMES)}, alias=7
)
FIELDS: Final = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
