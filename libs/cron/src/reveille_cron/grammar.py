"""The text of an expression: what is accepted, what is refused, and its one canonical spelling.

Nothing reaches the field expander that did not pass here, so its leniencies are not ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from reveille_cron.errors import CronError, invalid_cron, quoted
from reveille_cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, FIELDS, FieldSpec
from reveille_cron.refusals import refuse_expression, refuse_value

MAX_LENGTH: Final = 256
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DIGITS: Final = re.compile(r"[0-9]+")
_BLANKS: Final = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class Span:
    """The values from `start` to `stop`, every `step`-th; `star` when written with `*`."""

    start: int
    stop: int
    step: int = 1
    star: bool = False

    def __str__(self) -> str:
        """Spell the span the one way that means it."""
        every = f"/{self.step}" if self.step > 1 else ""
        if self.star:
            return f"*{every}"
        return str(self.start) if self.start == self.stop else f"{self.start}-{self.stop}{every}"


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`: the last day of the month."""

    def __str__(self) -> str:
        return "L"


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`d#n`: the n-th such weekday of the month."""

    weekday: int
    nth: int

    def __str__(self) -> str:
        return f"{self.weekday}#{self.nth}"


Item = Span | LastDay | NthWeekday


@dataclass(frozen=True, slots=True)
class Field:
    """One field as written: its items in order, and whether its text begins with a wildcard."""

    spec: FieldSpec
    items: tuple[Item, ...]

    @property
    def starred(self) -> bool:
        """Whether the text begins with `*` (or is `?`), which Debian's rules go by."""
        first = self.items[0]
        return isinstance(first, Span) and first.star

    @property
    def spans(self) -> tuple[Span, ...]:
        """The items that are plain values."""
        return tuple(item for item in self.items if isinstance(item, Span))

    def __str__(self) -> str:
        return ",".join(map(str, self.items))


def read(text: str) -> tuple[Field, ...]:
    """Read an expression into its five fields.

    Raises:
        CronError: With reason `invalid_cron`, naming the field and the accepted way to say it.
    """
    if len(text) > MAX_LENGTH:
        raise invalid_cron(
            "expression",
            f"{len(text)} characters are too many",
            f"use at most {MAX_LENGTH}",
        )
    trimmed = text.strip(" \t")
    if trimmed.startswith("@") and trimmed in MACROS:
        trimmed = MACROS[trimmed]
    words = _BLANKS.split(trimmed) if trimmed else []
    if len(words) != len(FIELDS) or "=" in words[0] or words[0].startswith("@"):
        raise refuse_expression(words, MACROS)
    return tuple(_read_field(spec, word) for spec, word in zip(FIELDS, words, strict=True))


def _read_field(spec: FieldSpec, text: str) -> Field:
    if not all("!" <= character <= "~" for character in text):
        raise invalid_cron(
            spec.name,
            f"{text[:32]!a} holds a character that is not printable ASCII",
            "use ASCII digits, letters and * , - / # ? L, and separate fields by spaces",
        )
    if text == "?":
        if not spec.is_day:
            raise invalid_cron(
                spec.name, "'?' stands only in a day field", "write '*' for every value"
            )
        text = "*"
    items = dict.fromkeys(_read_item(spec, part) for part in text.split(","))
    return Field(spec, tuple(items))


def _read_item(spec: FieldSpec, text: str) -> Item:
    if not text:
        raise invalid_cron(
            spec.name, "an element of the list is empty", "separate values by single commas"
        )
    body, slash, step_text = text.partition("/")
    if body == "*":
        return Span(spec.low, spec.high, _read_step(spec, step_text) if slash else 1, star=True)
    if spec is DAY_OF_MONTH and text in {"L", "l"}:
        return LastDay()
    if spec is DAY_OF_WEEK and "#" in text:
        return _read_nth(spec, text)
    start_text, dash, stop_text = body.partition("-")
    start = _read_value(spec, start_text, text)
    if not dash:
        if not slash:
            return _single(spec, start)
        stop = spec.high
    else:
        stop = _read_value(spec, stop_text, text)
        if stop == 0 and stop_text.upper() == "SUN" and start_text.upper() != "SUN":
            stop = 7  # a week that ends on Sunday: FRI-SUN, MON-SUN
    step = _read_step(spec, step_text) if slash else 1
    if start > stop:
        raise _backwards(spec, text, Span(start, stop, step), written=bool(dash))
    return _single(spec, start) if start + step > stop else Span(start, stop, step)


def _single(spec: FieldSpec, value: int) -> Span:
    value = spec.low if value == spec.alias else value
    return Span(value, value)


def _read_value(spec: FieldSpec, text: str, item: str) -> int:
    if _DIGITS.fullmatch(text):
        value = int(text)
        if spec.low <= value <= spec.high or value == spec.alias:
            return value
        raise invalid_cron(spec.name, f"{quoted(text)} is out of range", f"use {spec.accepts}")
    named = spec.names.get(text.upper())
    if named is None:
        raise refuse_value(spec, text, item)
    return named


def _read_step(spec: FieldSpec, text: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) == 0:
        raise invalid_cron(
            spec.name,
            f"the step {quoted(text)} is not a positive number",
            f"write a step of 1 to {spec.size}, as in */2",
        )
    step = int(text)
    if step > spec.size:
        raise invalid_cron(
            spec.name,
            f"the step {quoted(text)} is larger than the field has values",
            f"write a step of 1 to {spec.size}",
        )
    return step


def _read_nth(spec: FieldSpec, text: str) -> NthWeekday:
    day_text, _, nth_text = text.partition("#")
    if len(nth_text) != 1 or nth_text not in "12345":
        raise invalid_cron(
            spec.name,
            f"{quoted(text)} does not name the n-th weekday of a month",
            "write d#n with n from 1 to 5, as in MON#2 for the second Monday",
        )
    return NthWeekday(_single(spec, _read_value(spec, day_text, text)).start, int(nth_text))


def _backwards(spec: FieldSpec, text: str, span: Span, *, written: bool) -> CronError:
    if not written:
        return invalid_cron(
            spec.name, f"{quoted(text)} starts past the field's maximum", f"start at {spec.low}"
        )
    if span.start == spec.alias:
        return invalid_cron(
            spec.name, f"{quoted(text)} starts with {span.start}", f"write {spec.low}-{span.stop}"
        )
    # What the writer most likely meant, spelled without wrapping around.
    if span.step == 1:
        meant = f"{Span(span.start, spec.high)},{Span(spec.low, span.stop)}"
    else:
        around = range(span.start, span.stop + spec.size + 1, span.step)
        meant = ",".join(str(spec.low + (value - spec.low) % spec.size) for value in around)
    return invalid_cron(spec.name, f"the range {quoted(text)} runs backwards", f"write {meant}")
