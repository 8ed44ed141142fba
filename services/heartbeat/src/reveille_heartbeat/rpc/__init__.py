"""The RPCs of heartbeat: messages in, use case, messages out."""
