"""Since when somebody answers for a trigger, and an index of secrets' edits that are open."""

from __future__ import annotations

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0006_secret_edits")
