"""When an attempt that came to nothing is the last one."""

from __future__ import annotations

from datetime import datetime, timedelta

# A rule that refuses five times will refuse a sixth.
MOST_ATTEMPTS = 5
# How long a delivery waits for services that are away.
DISPATCH_DEADLINE = timedelta(hours=24)


def attempts_left(attempt: int) -> bool:
    """Tell whether an attempt with this number may be followed by another."""
    return attempt < MOST_ATTEMPTS


def dispatch_deadline(queued_at: datetime) -> datetime:
    """Say until when a delivery is tried again."""
    return queued_at + DISPATCH_DEADLINE
