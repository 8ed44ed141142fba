"""Loops that plan, hand over, renew and take over occurrences."""
