"""A schema of no service: what the runtime's own tests work on."""
