"""The SQL of the gateway and the mapping of its rows; used by use cases only."""
