"""How much of its quota a workspace has used."""

from __future__ import annotations

from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.domain.states import QuotaAction
from reveille_autopilot.store import autopilots, limits, workspaces
from reveille_autopilot.usecases.messages import quota_action
from reveille_autopilot.usecases.standing import in_workspace, not_found
from reveille_runtime.access import Actor
from reveille_runtime.db import Database
from reveille_runtime.validation import to_timestamp

_EVERYTHING = 2**62


class Usage:
    """Tells usage."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self, actor: Actor, workspace_id: UUID) -> pb.GetUsageResponse:
        """Tell the usage of the present period; nothing but the action while quotas are off."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, workspace_id)
            workspace = await workspaces.get(tx, workspace_id)
            if workspace is None:
                raise not_found("workspace", workspace_id)
            quota = workspace.quota
            if quota.action is QuotaAction.OFF:
                return pb.GetUsageResponse(action=quota_action(quota.action))
            start, end = quota.window(await autopilots.now(tx))
            used, _ = await limits.used(tx, workspace_id, start, _EVERYTHING)
            return pb.GetUsageResponse(
                action=quota_action(quota.action),
                used=used,
                limit=quota.limit,
                period_start_time=to_timestamp(start),
                period_end_time=to_timestamp(end),
                blocked_counts=await limits.blocked(tx, workspace_id, start),
            )
