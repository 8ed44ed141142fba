"""Who may change a rule beside its creator: granted and taken back by those who answer for it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reveille_autopilot.domain.models import Collaborator
from reveille_autopilot.store import people
from reveille_autopilot.usecases.standing import readable_autopilot, require_granter
from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.errors import InvalidArgument


class Collaborators:
    """Grants and takes back."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, actor: Actor, autopilot_id: UUID, user_id: str) -> Collaborator:
        """Let a member change a rule; granting it again refreshes who did."""
        async with self._db.transaction() as tx:
            rule, standing = await readable_autopilot(tx, actor, autopilot_id)
            granter = require_granter(standing, rule)
            if await people.strangers(tx, rule.workspace_id, [user_id]):
                raise InvalidArgument.of("user_id", f"{user_id} is no member of the workspace")
            return await people.put_collaborator(tx, rule.id, user_id, granter)

    async def remove(self, actor: Actor, autopilot_id: UUID, user_id: str) -> None:
        """Take the right back; taking what nobody has changes nothing."""
        async with self._db.transaction() as tx:
            rule, standing = await readable_autopilot(tx, actor, autopilot_id)
            require_granter(standing, rule)
            await people.delete_collaborator(tx, rule.id, user_id)

    async def page(
        self, actor: Actor, autopilot_id: UUID, after: str | None, limit: int
    ) -> Sequence[Collaborator]:
        """List who was let in."""
        async with self._db.session() as tx:
            rule, _ = await readable_autopilot(tx, actor, autopilot_id)
            return await people.collaborators(tx, rule.id, after, limit)
