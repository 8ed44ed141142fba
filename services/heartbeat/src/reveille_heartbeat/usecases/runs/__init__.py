"""Attempts: claimed, held, settled, followed up, repeated, taken over, watched."""
