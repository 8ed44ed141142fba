"""When an attempt that came to nothing is the last one."""

from __future__ import annotations

from datetime import datetime, timedelta

# A rule that refuses five times will refuse a sixth.
MOST_ATTEMPTS = 5
# How long a delivery waits for services that are away; as long its run waits for its body.
DISPATCH_DEADLINE = timedelta(hours=24)
# A moment within the hook's rate that is later than this is far off: a delivery begins to wait, and
# is judged anew, at that moment, for a run without a body is given up. What of the patience is lost
# to a nearer one is little, and asking twice for every delivery of a burst would cost.
FAR_OFF = timedelta(hours=1)


def attempts_left(attempt: int) -> bool:
    """Tell whether an attempt with this number may be followed by another."""
    return attempt < MOST_ATTEMPTS


def dispatch_deadline(queued_at: datetime) -> datetime:
    """Say until when a delivery is tried again."""
    return queued_at + DISPATCH_DEADLINE
