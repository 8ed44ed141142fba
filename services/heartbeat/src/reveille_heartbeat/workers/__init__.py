"""The loops of heartbeat: claiming and executing, sweeping, recovering."""
