"""The hints of heartbeat: where something may have changed."""

from __future__ import annotations

from typing import Final

# A run is waiting for an executor.
QUEUE: Final = "heartbeat.queue"
# Somebody other than its holder has ended a run.
STOPS: Final = "heartbeat.stops"
# An executor that stops has left runs to whoever comes next.
HANDED_OVER: Final = "heartbeat.handed_over"
# Events were written.
FEED: Final = "heartbeat.feed"
# Output was stored.
OUTPUT: Final = "heartbeat.output"
