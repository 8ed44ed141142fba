"""Rules: created, read, taken out of force and put in force again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import grpc

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.heartbeat.v1 import agent_pb2
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, Change, ExecutionMode
from reveille_autopilot.domain.versions import snapshot
from reveille_autopilot.store import autopilots, triggers
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.peers import Heartbeat, dependency_away
from reveille_autopilot.usecases.publish import locked_for_edit, publish
from reveille_autopilot.usecases.standing import in_workspace, readable_autopilot, too_weak
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import Aborted, NotFound
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once
from reveille_runtime.rpc_errors import from_rpc_error


@dataclass(frozen=True, slots=True)
class NewAutopilot:
    """A rule to create."""

    workspace_id: UUID
    title: str
    prompt: str
    issue_title_template: str
    agent_id: UUID
    execution_mode: ExecutionMode


class Autopilots:
    """Publishes rules."""

    def __init__(self, db: Database, heartbeat: Heartbeat) -> None:
        self._db = db
        self._heartbeat = heartbeat

    async def create(
        self, actor: Actor, new: NewAutopilot, request: pb.CreateAutopilotRequest
    ) -> pb.CreateAutopilotResponse:
        """Create a rule, in force at once, with its first version; any member may."""
        async with self._db.session() as tx:
            standing = await in_workspace(tx, actor, new.workspace_id)
        creator = standing.user_id
        if creator is None:
            raise too_weak("a member of the workspace")
        await self._require_agent(new)

        async def make(tx: Tx) -> pb.CreateAutopilotResponse:
            now = await autopilots.now(tx)
            rule = Autopilot(
                id=new_id(),
                workspace_id=new.workspace_id,
                title=new.title,
                prompt=new.prompt,
                issue_title_template=new.issue_title_template,
                agent_id=new.agent_id,
                execution_mode=new.execution_mode,
                status=AutopilotStatus.ACTIVE,
                creator_user_id=creator,
                rule_version_id=new_id(),
                rule_sequence=1,
                created_at=now,
                updated_at=now,
            )
            await autopilots.insert(tx, rule)
            version = snapshot(
                rule,
                (),
                version_id=rule.rule_version_id,
                change=Change.CREATED,
                publisher_user_id=creator,
                now=now,
            )
            await autopilots.append_version(tx, version)
            return pb.CreateAutopilotResponse(autopilot=messages.autopilot(rule))

        async with self._db.transaction() as tx:
            answer = await once(
                tx,
                principal=actor.principal,
                method="CreateAutopilot",
                request=request,
                response=pb.CreateAutopilotResponse,
                make=lambda: make(tx),
            )
        crash_point("autopilot.publish.after_commit")
        return answer

    async def get(self, actor: Actor, autopilot_id: UUID) -> Autopilot:
        """Read a rule."""
        async with self._db.session() as tx:
            rule, _ = await readable_autopilot(tx, actor, autopilot_id)
            return rule

    async def page(
        self, actor: Actor, workspace_id: UUID, before: UUID | None, limit: int
    ) -> Sequence[Autopilot]:
        """List the rules of a workspace."""
        async with self._db.session() as tx:
            await in_workspace(tx, actor, workspace_id)
            return await autopilots.page(tx, workspace_id, before, limit)

    async def pause(self, actor: Actor, autopilot_id: UUID, etag: str) -> Autopilot:
        """Take a rule out of force; a paused one stays as it is."""
        return await self._move(actor, autopilot_id, etag, AutopilotStatus.PAUSED, Change.PAUSED)

    async def resume(self, actor: Actor, autopilot_id: UUID, etag: str) -> Autopilot:
        """Put a rule in force again; occurrences missed meanwhile do not count."""
        return await self._move(actor, autopilot_id, etag, AutopilotStatus.ACTIVE, Change.RESUMED)

    async def _move(
        self,
        actor: Actor,
        autopilot_id: UUID,
        etag: str,
        status: AutopilotStatus,
        change: Change,
    ) -> Autopilot:
        async with self._db.transaction() as tx:
            rule, editor, now = await locked_for_edit(tx, actor, autopilot_id)
            if etag and etag != rule.etag:
                raise Aborted(
                    "ETAG_MISMATCH",
                    f"the rule is at {rule.etag} now; read it again",
                    {"etag": rule.etag, "autopilot_id": str(rule.id)},
                )
            if rule.status is status:
                return rule
            await triggers.touch_schedules(tx, rule.id, now)
            after = await publish(tx, rule, change, editor, now, status=status)
        crash_point("autopilot.publish.after_commit")
        return after

    async def _require_agent(self, new: NewAutopilot) -> None:
        """Check that the agent is one of this workspace: only heartbeat knows."""
        try:
            response = await self._heartbeat.agents.GetAgent(
                agent_pb2.GetAgentRequest(agent_id=str(new.agent_id))
            )
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            if isinstance(problem, NotFound):
                raise _no_agent(new) from error
            raise dependency_away("heartbeat", problem) from error
        if response.agent.workspace_id != str(new.workspace_id):
            raise _no_agent(new)


def _no_agent(new: NewAutopilot) -> NotFound:
    return NotFound(
        "NOT_FOUND",
        f"agent_id: the workspace has no agent {new.agent_id}",
        {"kind": "agent", "field": "agent_id", "id": str(new.agent_id)},
    )
