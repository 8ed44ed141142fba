"""What heartbeat tells whoever asks why."""
