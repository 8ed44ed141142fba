"""Where a test can make the gateway die: once at each durable boundary of its flow."""

from __future__ import annotations

from typing import Final

from reveille_runtime.crash import declare

BEFORE_STORE: Final = "webhook.receive.before_commit"
AFTER_STORE: Final = "webhook.receive.after_commit"
BEFORE_ADMIT: Final = "webhook.admit.before_call"
AFTER_ADMIT: Final = "webhook.admit.after_call"
AFTER_RECORD: Final = "webhook.admit.after_record"
AFTER_CLAIM: Final = "webhook.claim.after_commit"
BEFORE_DISPATCH: Final = "webhook.dispatch.before_call"
AFTER_DISPATCH: Final = "webhook.dispatch.after_call"
AFTER_SETTLE: Final = "webhook.settle.after_commit"
AFTER_REPLAY: Final = "webhook.replay.after_commit"
AFTER_HELD: Final = "webhook.held.after_stretch"
AFTER_WITHDRAWAL: Final = "webhook.held.after_withdrawal"
AFTER_PRUNED: Final = "webhook.retention.after_stretch"

CRASH_POINTS = declare(
    BEFORE_STORE,
    AFTER_STORE,
    BEFORE_ADMIT,
    AFTER_ADMIT,
    AFTER_RECORD,
    AFTER_CLAIM,
    BEFORE_DISPATCH,
    AFTER_DISPATCH,
    AFTER_SETTLE,
    AFTER_REPLAY,
    AFTER_HELD,
    AFTER_WITHDRAWAL,
    AFTER_PRUNED,
)
