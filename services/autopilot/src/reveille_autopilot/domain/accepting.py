"""What a rule and its triggers may say, as far as this service alone can judge it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from reveille_cron import CronError, Schedule, parse, zone

PROVIDER = re.compile(r"[a-z][a-z0-9_-]{0,39}")
ISSUE_PREFIX = re.compile(r"[A-Z]{2,8}")
DEFAULT_BODY_BYTES = 262_144
MAX_BODY_BYTES = 26_214_400
MAX_FILTERS = 50
# Every version of a rule holds all its triggers.
MAX_TRIGGERS = 100
# A version travels in one message, of at most 4 MiB: with who published what, and framing.
MAX_RULE_BYTES = 3_145_728
# How far ahead a schedule may fire once.
FURTHEST = timedelta(days=3660)


def refusal_text(error: CronError) -> str:
    """Say what is wrong and what is accepted, naming the part of an expression that is at fault."""
    part = "" if error.field in {"expression", "time_zone"} else f"{error.field}: "
    return f"{part}{error.message}; {error.hint}"


def once_refusal(run_at: datetime, now: datetime) -> str | None:
    """Say what is wrong with the one instant of a schedule; None when it can come."""
    if run_at.microsecond:
        return "must be a whole second"
    if run_at <= now:
        return "must lie in the future"
    if run_at > now + FURTHEST:
        return "must lie within the next ten years"
    return None


def schedule_refusals(cron: str, time_zone: str, now: datetime) -> list[tuple[str, CronError]]:
    """Give every refusal of a schedule, each with the field it is about; none when it can fire."""
    refusals: list[tuple[str, CronError]] = []
    try:
        expression = parse(cron)
    except CronError as error:
        refusals.append(("cron", error))
    try:
        place = zone(time_zone)
    except CronError as error:
        refusals.append(("time_zone", error))
    if not refusals:
        try:
            Schedule(expression, place).require_firing(now)
        except CronError as error:
            refusals.append(("cron", error))
    return refusals
