"""Reading rules, with what is worth knowing beside them, and what they have said."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille_autopilot.domain.models import Autopilot, Trigger
from reveille_autopilot.domain.permissions import Standing
from reveille_autopilot.domain.states import AutopilotStatus
from reveille_autopilot.domain.versions import RuleVersion
from reveille_autopilot.store import autopilots, people, triggers
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.standing import (
    in_workspace,
    not_found,
    readable_autopilot,
    standing_of,
)
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx
from reveille_runtime.validation import to_timestamp

# What a list shows unless it is told otherwise.
IN_USE = (AutopilotStatus.ACTIVE, AutopilotStatus.PAUSED)


class RuleReader:
    """Reads rules for callers who may see them."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, actor: Actor, autopilot_id: UUID) -> pb.GetAutopilotResponse:
        """Read a rule."""
        async with self._db.session() as tx:
            rule, standing = await readable_autopilot(tx, actor, autopilot_id)
            followers = await people.subscribers(tx, [rule.id])
            (summary,) = await _summaries(tx, [rule], standing)
        return pb.GetAutopilotResponse(
            autopilot=messages.autopilot(rule, followers[rule.id]), summary=summary
        )

    async def page(
        self,
        actor: Actor,
        workspace_id: UUID,
        statuses: Sequence[AutopilotStatus],
        before: UUID | None,
        limit: int,
    ) -> pb.ListAutopilotsResponse:
        """List the rules of a workspace, one more than asked for where there are more."""
        async with self._db.session() as tx:
            standing = await in_workspace(tx, actor, workspace_id)
            found = await autopilots.page(tx, workspace_id, statuses or IN_USE, before, limit)
            followers = await people.subscribers(tx, [rule.id for rule in found])
            summaries = await _summaries(tx, found, standing)
        return pb.ListAutopilotsResponse(
            autopilots=[messages.autopilot(rule, followers[rule.id]) for rule in found],
            summaries=summaries,
        )

    async def versions(
        self, actor: Actor, autopilot_id: UUID, before: int | None, limit: int
    ) -> Sequence[RuleVersion]:
        """List what a rule has said, newest first."""
        async with self._db.session() as tx:
            rule, _ = await readable_autopilot(tx, actor, autopilot_id)
            return await autopilots.versions(tx, rule.id, before, limit)

    async def version(self, actor: Actor, version_id: UUID) -> RuleVersion:
        """Read what a rule said once."""
        async with self._db.session() as tx:
            found = await autopilots.version(tx, version_id)
            if found is not None:
                standing = await standing_of(tx, actor, found.workspace_id)
                if standing.belongs:
                    return found
        raise not_found("rule version", version_id)


async def _summaries(
    tx: Tx, rules: Sequence[Autopilot], standing: Standing
) -> list[pb.AutopilotSummary]:
    ids = [rule.id for rule in rules]
    now = await autopilots.now(tx)
    last = await autopilots.last_runs(tx, ids)
    let_in: set[UUID] = set()
    if standing.user_id is not None:
        let_in = await people.collaborates(tx, ids, standing.user_id)
    having: dict[UUID, list[Trigger]] = {rule_id: [] for rule_id in ids}
    for trigger in await triggers.of_rules(tx, ids):
        having[trigger.autopilot_id].append(trigger)
    shown = []
    for rule in rules:
        fires = [messages.next_fire(trigger, rule, now) for trigger in having[rule.id]]
        kinds = {trigger.kind for trigger in having[rule.id] if trigger.enabled}
        summary = pb.AutopilotSummary(
            autopilot_id=str(rule.id),
            trigger_kinds=sorted(map(messages.trigger_kind, kinds)),
            next_fire_time=to_timestamp(min((at for at in fires if at is not None), default=None)),
            can_write=standing.may_write(rule.creator_user_id, collaborates=rule.id in let_in),
            can_manage_access=standing.may_grant(rule.creator_user_id),
        )
        if rule.id in last:
            run_id, state, admitted = last[rule.id]
            summary.last_run_id = str(run_id)
            summary.last_run_state = messages.run_state(state)
            summary.last_run_time.FromDatetime(admitted)
        shown.append(summary)
    return shown
