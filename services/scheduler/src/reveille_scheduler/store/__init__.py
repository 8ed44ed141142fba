"""The SQL of the scheduler's tables and the mapping of their rows."""
