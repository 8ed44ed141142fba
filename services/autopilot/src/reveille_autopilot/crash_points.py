"""Where this service may be killed by a test: every durable boundary of its flow."""

from __future__ import annotations

from reveille_runtime.crash import declare

CRASH_POINTS = declare(
    # An occurrence becomes a run.
    "autopilot.admit.before_commit",
    "autopilot.admit.after_commit",
    # The body of an admitted delivery is stored.
    "autopilot.payload.after_commit",
    # The run's downstream object is made and linked.
    "autopilot.dispatch.before_call",
    "autopilot.dispatch.before_link",
    "autopilot.link.before_commit",
    "autopilot.link.after_commit",
    # An event or a check brings the outcome; the feed's cursor moves after it.
    "autopilot.complete.before_commit",
    "autopilot.complete.after_commit",
    # Somebody cancels a run.
    "autopilot.cancel.after_request",
    "autopilot.cancel.after_call",
    "autopilot.cancel.before_commit",
    "autopilot.cancel.after_commit",
    # A pending run reaches its deadline.
    "autopilot.give_up.before_call",
    "autopilot.give_up.after_call",
    "autopilot.give_up.before_commit",
    "autopilot.give_up.after_commit",
    # A rule or a trigger is published, and told to the others.
    "autopilot.publish.before_commit",
    "autopilot.publish.after_commit",
    "autopilot.relay.after_push",
    # A signing secret is added or removed: begun here, made by the gateway, recorded here.
    "autopilot.secret.before_call",
    "autopilot.secret.before_record",
    # What is old is forgotten, stretch by stretch.
    "autopilot.retention.after_stretch",
)
