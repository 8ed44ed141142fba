"""The rules of heartbeat: pure and synchronous; time, ids and randomness are parameters."""
