"""Rules: created, changed, taken out of force, put in force again, and archived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.domain.editing import RuleEdit, change_of, target_changed
from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import (
    AutopilotStatus,
    Change,
    ExecutionMode,
    OverlapPolicy,
)
from reveille_autopilot.domain.versions import snapshot
from reveille_autopilot.store import autopilots, people, triggers
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.publish import (
    locked_for_edit,
    locked_for_writer,
    publish,
    require_etag,
    store,
)
from reveille_autopilot.usecases.standing import (
    in_workspace,
    readable_autopilot,
    require_writer,
    too_weak,
)
from reveille_autopilot.usecases.targets import Targets
from reveille_autopilot.usecases.telling import rule_event
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import InvalidArgument
from reveille_runtime.feed import append
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once


@dataclass(frozen=True, slots=True)
class NewAutopilot:
    """A rule to create."""

    workspace_id: UUID
    title: str
    prompt: str
    issue_title_template: str
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    execution_mode: ExecutionMode
    overlap_policy: OverlapPolicy
    subscribers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """A rule with who follows it."""

    rule: Autopilot
    subscribers: Sequence[str]


class Autopilots:
    """Publishes rules."""

    def __init__(self, db: Database, targets: Targets) -> None:
        self._db = db
        self._targets = targets

    async def create(
        self, actor: Actor, new: NewAutopilot, request: pb.CreateAutopilotRequest
    ) -> pb.CreateAutopilotResponse:
        """Create a rule, in force at once, with its first version; any member may."""
        async with self._db.session() as tx:
            standing = await in_workspace(tx, actor, new.workspace_id)
            now = await autopilots.now(tx)
        creator = standing.user_id
        if creator is None:
            raise too_weak("a member of the workspace")
        rule = Autopilot(
            id=new_id(),
            workspace_id=new.workspace_id,
            title=new.title,
            prompt=new.prompt,
            issue_title_template=new.issue_title_template,
            agent_id=new.agent_id,
            squad_id=new.squad_id,
            project_id=new.project_id,
            execution_mode=new.execution_mode,
            overlap_policy=new.overlap_policy,
            status=AutopilotStatus.ACTIVE,
            pause_reason=None,
            creator_user_id=creator,
            rule_version_id=new_id(),
            rule_sequence=1,
            revision=1,
            active_since=now,
            created_at=now,
            updated_at=now,
        )
        await self._targets.require_usable(rule, creator)

        async def make(tx: Tx) -> pb.CreateAutopilotResponse:
            await _require_members(tx, rule.workspace_id, new.subscribers)
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
            await people.replace_subscribers(tx, rule.id, new.subscribers)
            await append(tx, [rule_event(rule, Change.CREATED)])
            crash_point("autopilot.publish.before_commit")
            return pb.CreateAutopilotResponse(autopilot=messages.autopilot(rule, new.subscribers))

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

    async def update(self, actor: Actor, edit: RuleEdit) -> Published:
        """Change what an edit names; equal values change nothing.

        Whoever edits text, target or manners answers for all triggers from then on. The etag holds
        from the look at the target to the commit.
        """
        async with self._db.session() as tx:
            seen, standing = await readable_autopilot(tx, actor, edit.autopilot_id)
            editor = await require_writer(tx, standing, seen)
        require_etag(edit.etag, seen.etag, autopilot_id=seen.id)
        if target_changed(seen, edit.applied(seen)):
            await self._targets.require_usable(edit.applied(seen), editor)
        async with self._db.transaction() as tx:
            rule, editor, now = await locked_for_edit(tx, actor, edit.autopilot_id)
            require_etag(edit.etag, rule.etag, autopilot_id=rule.id)
            after = edit.applied(rule)
            followers = (await people.subscribers(tx, [rule.id]))[rule.id]
            refollowed = edit.subscribers is not None and edit.subscribers != followers
            if edit.subscribers is not None and refollowed:
                await _require_members(tx, rule.workspace_id, edit.subscribers)
                await people.replace_subscribers(tx, rule.id, edit.subscribers)
                followers = edit.subscribers
            change = change_of(rule, after)
            if change is not None:
                rule = await publish(tx, rule, change, editor, now, after=after)
            elif refollowed:
                rule = await store(tx, rule, after, None, now)
        crash_point("autopilot.publish.after_commit")
        return Published(rule, followers)

    async def pause(self, actor: Actor, autopilot_id: UUID, etag: str) -> Published:
        """Take a rule out of force; a paused one stays as it is, but for the system's reason."""
        async with self._db.transaction() as tx:
            rule, editor, now = await locked_for_edit(tx, actor, autopilot_id)
            require_etag(etag or rule.etag, rule.etag, autopilot_id=rule.id)
            after = replace(rule, status=AutopilotStatus.PAUSED, pause_reason=None)
            if after != rule:
                await triggers.touch_schedules(tx, rule.id, now)
                rule = await publish(tx, rule, Change.PAUSED, editor, now, after=after)
            followers = (await people.subscribers(tx, [rule.id]))[rule.id]
        crash_point("autopilot.publish.after_commit")
        return Published(rule, followers)

    async def resume(self, actor: Actor, autopilot_id: UUID, etag: str) -> Published:
        """Put a rule in force again, if its target can work; what it missed does not count."""
        async with self._db.session() as tx:
            seen, standing = await readable_autopilot(tx, actor, autopilot_id)
            editor = await require_writer(tx, standing, seen)
        if seen.status is AutopilotStatus.PAUSED:
            resumed = replace(seen, status=AutopilotStatus.ACTIVE, pause_reason=None)
            await self._targets.require_usable(resumed, editor)
        async with self._db.transaction() as tx:
            rule, editor, now = await locked_for_edit(tx, actor, autopilot_id)
            require_etag(etag or rule.etag, rule.etag, autopilot_id=rule.id)
            if rule.status is AutopilotStatus.PAUSED:
                # Somebody may have given it another target since it was asked about.
                require_etag(seen.etag, rule.etag, autopilot_id=rule.id)
                after = replace(
                    rule, status=AutopilotStatus.ACTIVE, pause_reason=None, active_since=now
                )
                await triggers.touch_schedules(tx, rule.id, now)
                rule = await publish(tx, rule, Change.RESUMED, editor, now, after=after)
            followers = (await people.subscribers(tx, [rule.id]))[rule.id]
        crash_point("autopilot.publish.after_commit")
        return Published(rule, followers)

    async def archive(self, actor: Actor, autopilot_id: UUID, etag: str) -> Published:
        """Take a rule out of force for good; what it has and made stays."""
        async with self._db.transaction() as tx:
            rule, editor, now = await locked_for_writer(tx, actor, autopilot_id)
            require_etag(etag or rule.etag, rule.etag, autopilot_id=rule.id)
            if rule.status is not AutopilotStatus.ARCHIVED:
                after = replace(rule, status=AutopilotStatus.ARCHIVED, pause_reason=None)
                await triggers.touch_schedules(tx, rule.id, now)
                rule = await publish(tx, rule, Change.ARCHIVED, editor, now, after=after)
            followers = (await people.subscribers(tx, [rule.id]))[rule.id]
        crash_point("autopilot.publish.after_commit")
        return Published(rule, followers)


async def _require_members(tx: Tx, workspace_id: UUID, user_ids: Sequence[str]) -> None:
    strangers = await people.strangers(tx, workspace_id, user_ids) if user_ids else []
    if strangers:
        raise InvalidArgument.of(
            "subscriber_user_ids", f"no members of the workspace: {', '.join(strangers)}"
        )
