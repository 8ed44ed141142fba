"""Promised attempts, by scope."""

from __future__ import annotations

from reveille_runtime.migrations import sql_revision

revision, down_revision, upgrade = sql_revision(__file__, after="0001_init")
