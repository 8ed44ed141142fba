"""The service's side of its contract: reads messages, calls a use case, writes messages."""
