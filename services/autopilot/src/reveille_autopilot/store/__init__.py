"""The service's SQL and the mapping of its rows; used by use cases only."""
