"""Real PostgreSQL, real servers and an OTLP receiver for Reveille's tests."""
