"""What is wrong with a schedule: asked when one is created, and of the whole when one is edited."""

from __future__ import annotations

from datetime import datetime

from reveille_autopilot.domain.accepting import once_refusal, refusal_text, schedule_refusals
from reveille_autopilot.domain.models import ScheduleConfig
from reveille_runtime.validation import Violations

# A schedule that fires once has no cron to be wrong; the zone is judged beside one that is right.
_ANY_CRON = "@daily"


def check_schedule(found: Violations, config: ScheduleConfig, now: datetime) -> None:
    """Note every refusal of a schedule under its field."""
    if config.run_at is not None and config.cron:
        found.add("schedule.run_at", "takes the place of a cron; give one of them")
        return
    cron = _ANY_CRON if config.run_at is not None else config.cron
    for field, refusal in schedule_refusals(cron, config.time_zone, now):
        found.add(f"schedule.{field}", refusal_text(refusal), refusal.reason.value.upper())
    if config.run_at is not None and (text := once_refusal(config.run_at, now)) is not None:
        found.add("schedule.run_at", text, "OUT_OF_BOUNDS")
