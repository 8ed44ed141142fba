"""Where a test can make the scheduler die: once at each durable boundary of its flow."""

from __future__ import annotations

from typing import Final

from reveille_runtime.crash import declare

AFTER_CLAIM: Final = "scheduler.plan.after_claim"
AFTER_RETRY_CLAIM: Final = "scheduler.retry.after_claim"
AFTER_HOOK_TAKEN: Final = "scheduler.hook.after_taken"
AFTER_HOOK_CLAIM: Final = "scheduler.hook.after_claim"
BEFORE_HAND_OVER: Final = "scheduler.hand_over.before_call"
AFTER_HAND_OVER: Final = "scheduler.hand_over.after_call"
AFTER_SETTLE: Final = "scheduler.settle.after_commit"
AFTER_TAKE_OVER: Final = "scheduler.take_over.after_commit"
AFTER_PRUNED: Final = "scheduler.retention.after_stretch"

CRASH_POINTS = declare(
    AFTER_CLAIM,
    AFTER_RETRY_CLAIM,
    AFTER_HOOK_TAKEN,
    AFTER_HOOK_CLAIM,
    BEFORE_HAND_OVER,
    AFTER_HAND_OVER,
    AFTER_SETTLE,
    AFTER_TAKE_OVER,
    AFTER_PRUNED,
)
