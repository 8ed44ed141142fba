"""What waited before it was counted is counted, too."""

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0003_told_bytes")
