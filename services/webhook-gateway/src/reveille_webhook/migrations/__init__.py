"""Alembic revisions of the schema; each runs one .sql file."""
