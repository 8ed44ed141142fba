"""How long a run may stay pending, and when the sweep looks at it again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from reveille_autopilot.domain.states import RunSource

# Whoever admitted a run dispatches it at once; the sweep steps in when that did not happen.
FIRST_LOOK = timedelta(seconds=10)
# How often an open run is compared with its downstream object, feed or no feed.
CHECK = timedelta(minutes=15)
# How soon a run is looked at whose downstream object is known to have ended.
CHECK_SOON = timedelta(seconds=15)

# How often a buffered run looks whether it may begin, should nobody have told it.
BUFFER_LOOK = timedelta(seconds=30)

# How often a cancellation is repeated until what it is about has ended.
CANCEL_AGAIN = timedelta(seconds=2)

# How long a run may be pending; one that waited for another, from its turn on.
SCHEDULE = timedelta(hours=1)
OTHERS = timedelta(hours=24)
# What a schedule's run has at the least, however late it was admitted: a one-shot or a backfill may
# be a day late, and has to outlive several calls that hang until their timeout.
LATE = timedelta(minutes=5)


def dispatch_deadline(source: RunSource, planned_at: datetime | None, now: datetime) -> datetime:
    """Say when a pending run is given up: a schedule must not fire hours late."""
    match source:
        case RunSource.SCHEDULE:
            return max((planned_at or now) + SCHEDULE, now + LATE)
        case RunSource.WEBHOOK | RunSource.MANUAL | RunSource.API:
            return now + OTHERS
        case _:
            assert_never(source)
