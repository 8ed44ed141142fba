"""What other crons accept and this one does not, each with the way to say it here."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from reveille_cron.errors import CronError, invalid_cron, quoted
from reveille_cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec

_FIVE_FIELDS: Final = "write five fields: minute hour day-of-month month day-of-week"
_HASHED: Final = re.compile(r"[HR](?![A-Z])")


def refuse_expression(words: Sequence[str], macros: Collection[str]) -> CronError:
    """Explain why `words` are not five fields."""
    if not words:
        return invalid_cron("expression", "it is empty", f"{_FIVE_FIELDS}, as in 0 9 * * MON-FRI")
    first = words[0]
    if first.startswith("@"):
        known = " ".join(macros)
        if first == "@every":
            known = f"write a step as in */5 * * * *, or one of {known}"
        else:
            known = f"use one of {known}"
        return invalid_cron("expression", f"{quoted(' '.join(words))} is not a macro", known)
    if first.upper().startswith(("TZ=", "CRON_TZ=")):
        return invalid_cron(
            "expression",
            f"the prefix {quoted(first)} is not part of an expression",
            "set the time zone beside the expression",
        )
    if len(words) in {6, 7}:
        return invalid_cron(
            "expression",
            f"it has {len(words)} fields",
            f"{_FIVE_FIELDS}; there is no field for seconds or years",
        )
    return invalid_cron("expression", f"it has {len(words)} field(s)", _FIVE_FIELDS)


def refuse_value(spec: FieldSpec, text: str, item: str) -> CronError:
    """Explain why `text`, a part of `item`, is no value of the field."""
    upper = item.upper()
    accepts = f"use {spec.accepts}"
    message = f"{quoted(item)} is not a value"
    if not text:
        lacks = f"nothing before {item[0]!r}" if item[0] in "-/#" else "a range without an end"
        return invalid_cron(spec.name, f"{quoted(item)} has {lacks}", accepts)
    if "*" in item:
        return invalid_cron(
            spec.name, message, "write * alone or with a step, as in */2; ranges as in 1-5"
        )
    if "~" in item or _HASHED.match(upper):
        return invalid_cron(
            spec.name,
            f"{quoted(item)} asks for a hashed or random time",
            f"name the value: {accepts}",
        )
    if "?" in item:
        return invalid_cron(
            spec.name, message, "'?' stands alone, in a day field; write '*' for every value"
        )
    if "#" in item:
        hint = "the n-th weekday goes into day_of_week, as in MON#2"
        if spec is DAY_OF_WEEK:
            hint = "write one weekday before '#', as in MON#2"
        return invalid_cron(spec.name, message, hint)
    if "W" in upper and spec is DAY_OF_MONTH:
        return invalid_cron(
            spec.name,
            f"{quoted(item)} asks for the nearest working day",
            "name days and weekdays, as in 1-3 with MON-FRI, or use L for the last day",
        )
    if "L" in upper and spec is DAY_OF_MONTH:
        return invalid_cron(spec.name, message, "write L alone for the last day of the month")
    if spec is DAY_OF_WEEK and upper.endswith("L") and len(item) > 1:
        return invalid_cron(
            spec.name,
            f"{quoted(item)} asks for the last such weekday",
            "write d#n, as in FRI#4 for the fourth Friday",
        )
    if upper == "L":
        return invalid_cron(spec.name, message, "L stands only in day_of_month")
    if text.upper()[:3] in spec.names:
        return invalid_cron(
            spec.name, message, f"names have three letters: write {text.upper()[:3]}"
        )
    return invalid_cron(spec.name, message, accepts)
