"""The schema as it began."""

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after=None)
