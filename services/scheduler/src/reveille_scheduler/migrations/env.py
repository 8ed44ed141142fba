"""Alembic's way into this schema; `python -m reveille_runtime.migrate` is how it is run."""

from reveille_runtime.migrations.env import run

run()
