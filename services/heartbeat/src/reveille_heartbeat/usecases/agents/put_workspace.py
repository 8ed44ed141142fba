"""PutWorkspace: keep the copy of a workspace, and its local runtime present."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.domain.values import Workspace
from reveille_heartbeat.store.queries import Q
from reveille_runtime.db import Database, Tx, retrying_transaction

_BATCH = 500


class PutWorkspace:
    """Stores what the owner wants; an older revision changes nothing."""

    def __init__(self, db: Database, presence: timedelta, new_id: Callable[[], UUID]) -> None:
        self._db = db
        self._presence = presence
        self._new_id = new_id

    async def __call__(self, workspace: Workspace, revision: int) -> None:
        """Store it."""
        runtime_id = self._new_id()

        async def put(tx: Tx) -> None:
            await tx.execute(
                Q["put_workspace"],
                workspace.workspace_id,
                workspace.issue_prefix,
                workspace.default_responsible_user_id,
                revision,
                workspace.status.value,
            )
            await tx.execute(
                Q["ensure_local_runtime"], runtime_id, workspace.workspace_id, self._presence
            )

        await retrying_transaction(self._db, put, repeatable=True)


class RenewRuntimes:
    """While any replica lives, the local runtimes are present."""

    def __init__(self, db: Database, presence: timedelta) -> None:
        self._db = db
        self._presence = presence

    async def __call__(self) -> None:
        """Renew those that need it, in batches."""
        while True:
            async with self._db.session() as tx:
                renewed = await tx.execute(Q["renew_local_runtimes"], self._presence, _BATCH)
            if renewed < _BATCH:
                return
