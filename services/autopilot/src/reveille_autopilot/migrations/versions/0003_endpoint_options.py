"""What a webhook trigger's hook does otherwise than usual."""

from __future__ import annotations

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0002_rule_plane")
