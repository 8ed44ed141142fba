"""Fixtures over real parts for Reveille's tests."""
