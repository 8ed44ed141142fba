"""Alembic's way into the scratch schema."""

from reveille_runtime.migrations.env import run

run()
