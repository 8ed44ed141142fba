"""What heartbeat does, one use case a module; each opens its own transaction."""
