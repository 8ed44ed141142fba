"""The body of every service's Alembic `env.py`: our connection, its schema's own version table."""

from __future__ import annotations

from alembic import context

VERSION_TABLE = "alembic_version"


def run() -> None:
    """Apply what is missing on the connection that `migrate` prepared."""
    attributes = context.config.attributes
    schema: str = attributes["schema"]
    context.configure(
        connection=attributes["connection"],
        version_table=VERSION_TABLE,
        version_table_schema=schema,
    )
    with context.begin_transaction():
        context.run_migrations()
