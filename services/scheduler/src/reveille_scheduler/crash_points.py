"""Where a test can make the scheduler die: once at each durable boundary of its flow."""

from __future__ import annotations

from typing import Final

from reveille_runtime.crash import declare

AFTER_CLAIM: Final = "scheduler.plan.after_claim"
AFTER_RETRY_CLAIM: Final = "scheduler.retry.after_claim"
BEFORE_HAND_OVER: Final = "scheduler.hand_over.before_call"
AFTER_HAND_OVER: Final = "scheduler.hand_over.after_call"
AFTER_SETTLE: Final = "scheduler.settle.after_commit"

CRASH_POINTS = declare(
    AFTER_CLAIM, AFTER_RETRY_CLAIM, BEFORE_HAND_OVER, AFTER_HAND_OVER, AFTER_SETTLE
)
