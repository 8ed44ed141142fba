"""A wakeup says how much its run is told."""

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0002_engine")
