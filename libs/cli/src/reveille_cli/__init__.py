"""The reveille command."""
