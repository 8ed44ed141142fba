"""The senders we know, as data."""
