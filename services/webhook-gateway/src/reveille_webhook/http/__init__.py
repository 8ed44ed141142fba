"""The HTTP edge that senders reach."""
