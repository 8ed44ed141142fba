"""What was begun with signing secrets, until a version tells of it."""

from __future__ import annotations

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0005_prune_any_gap")
