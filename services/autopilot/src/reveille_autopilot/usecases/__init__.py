"""What the service does, one use case a module; each opens its own transactions."""
