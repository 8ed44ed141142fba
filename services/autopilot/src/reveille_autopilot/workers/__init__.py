"""Loops that carry on what a caller, or a killed process, left undone."""
