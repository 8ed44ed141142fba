"""Begin with the clock; tests add the tables that they need."""

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after=None)
