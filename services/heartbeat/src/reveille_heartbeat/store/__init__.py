"""The SQL of heartbeat and the mapping of its rows; used by use cases only."""
