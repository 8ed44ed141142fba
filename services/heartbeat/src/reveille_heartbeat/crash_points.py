"""The durable boundaries of heartbeat at which a test can make the process die."""

from __future__ import annotations

from typing import Final

from reveille_runtime.crash import declare

ENQUEUE_BEFORE_COMMIT: Final = "heartbeat.enqueue.before_commit"
ENQUEUE_AFTER_COMMIT: Final = "heartbeat.enqueue.after_commit"
CREATE_ISSUE_BEFORE_COMMIT: Final = "heartbeat.create_issue.before_commit"
CREATE_ISSUE_AFTER_COMMIT: Final = "heartbeat.create_issue.after_commit"
ISSUE_STOPPED_AFTER_COMMIT: Final = "heartbeat.issue_stopped.after_commit"
AGENT_STOPPED_AFTER_COMMIT: Final = "heartbeat.agent_stopped.after_commit"
CANCEL_AFTER_COMMIT: Final = "heartbeat.cancel.after_commit"
CLAIM_BEFORE_COMMIT: Final = "heartbeat.claim.before_commit"
CLAIM_AFTER_COMMIT: Final = "heartbeat.claim.after_commit"
CHECKOUT_AFTER_COMMIT: Final = "heartbeat.checkout.after_commit"
PAYLOAD_WRITTEN: Final = "heartbeat.payload.after_write"
SPAWN_BEFORE_IDENTITY: Final = "heartbeat.spawn.before_identity"
SPAWN_AFTER_IDENTITY: Final = "heartbeat.spawn.after_identity"
SPAWN_AFTER_GO: Final = "heartbeat.spawn.after_go"
EXECUTE_ENDED: Final = "heartbeat.execute.after_end"
SETTLE_BEFORE_COMMIT: Final = "heartbeat.settle.before_commit"
SETTLE_AFTER_COMMIT: Final = "heartbeat.settle.after_commit"
FOLLOW_UP_BEFORE_COMMIT: Final = "heartbeat.follow_up.before_commit"
FOLLOW_UP_AFTER_COMMIT: Final = "heartbeat.follow_up.after_commit"
DEADLINE_AFTER_COMMIT: Final = "heartbeat.deadline.after_commit"
TAKE_OVER_AFTER_COMMIT: Final = "heartbeat.take_over.after_commit"
RETENTION_AFTER_STRETCH: Final = "heartbeat.retention.after_stretch"
TIMERS_AFTER_ENQUEUE: Final = "heartbeat.timers.after_enqueue"
RETRY_AFTER_COMMIT: Final = "heartbeat.retry.after_commit"

CRASH_POINTS: Final = declare(
    ENQUEUE_BEFORE_COMMIT,
    ENQUEUE_AFTER_COMMIT,
    CREATE_ISSUE_BEFORE_COMMIT,
    CREATE_ISSUE_AFTER_COMMIT,
    ISSUE_STOPPED_AFTER_COMMIT,
    AGENT_STOPPED_AFTER_COMMIT,
    CANCEL_AFTER_COMMIT,
    CLAIM_BEFORE_COMMIT,
    CLAIM_AFTER_COMMIT,
    CHECKOUT_AFTER_COMMIT,
    PAYLOAD_WRITTEN,
    SPAWN_BEFORE_IDENTITY,
    SPAWN_AFTER_IDENTITY,
    SPAWN_AFTER_GO,
    EXECUTE_ENDED,
    SETTLE_BEFORE_COMMIT,
    SETTLE_AFTER_COMMIT,
    FOLLOW_UP_BEFORE_COMMIT,
    FOLLOW_UP_AFTER_COMMIT,
    DEADLINE_AFTER_COMMIT,
    TAKE_OVER_AFTER_COMMIT,
    RETENTION_AFTER_STRETCH,
    TIMERS_AFTER_ENQUEUE,
    RETRY_AFTER_COMMIT,
)
