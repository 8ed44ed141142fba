"""Explain: everything this service knows about an id or an occurrence key."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reveille_autopilot.domain.keys import generation_key, webhook_key
from reveille_autopilot.domain.models import Autopilot, Run, Trigger
from reveille_autopilot.store import admission, autopilots, runs, triggers, workspaces
from reveille_autopilot.usecases import messages
from reveille_autopilot.usecases.findings import explain_autopilot, explain_run, explain_trigger
from reveille_autopilot.usecases.standing import standing_of
from reveille_runtime.access import Actor, current_actor
from reveille_runtime.db import Database, Tx
from reveille_runtime.explain import Finding, uuid_or_none

# How many of a trigger's or a rule's newest runs are worth telling.
RECENT = 5
_GENERATIONS = 5


class Explain:
    """Finds what an id leads to; what the caller may not see yields no findings."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def __call__(self, some_id: str) -> list[Finding]:
        """Tell what is known."""
        actor = current_actor()
        known = uuid_or_none(some_id)
        async with self._db.session() as tx:
            if known is None:
                return await _by_key(tx, actor, some_id)
            return await _by_uuid(tx, actor, known)


async def _by_key(tx: Tx, actor: Actor, key: str) -> list[Finding]:
    return await _visible_runs(tx, actor, await _of_key(tx, key))


async def _of_key(tx: Tx, key: str) -> list[Run]:
    """Find the run of an occurrence, and those of it that were given up."""
    names = [generation_key(key, number) for number in range(_GENERATIONS)]
    return list((await admission.find_by_key(tx, names)).values())


async def _by_uuid(tx: Tx, actor: Actor, some_id: UUID) -> list[Finding]:
    # A run that was given up has handed its delivery back: only its key tells of it.
    found = [*await runs.find(tx, some_id), *await _of_key(tx, webhook_key(some_id))]
    known = {run.id: run for run in found}
    newest_first = [known[run_id] for run_id in sorted(known, reverse=True)]
    findings = await _visible_runs(tx, actor, newest_first)
    if (trigger := await triggers.get(tx, some_id)) is not None:
        findings += await _trigger(tx, actor, trigger)
    if (rule := await autopilots.get(tx, some_id)) is not None:
        findings += await _autopilot(tx, actor, rule)
    return findings + await _workspace(tx, actor, some_id)


async def _trigger(tx: Tx, actor: Actor, trigger: Trigger) -> list[Finding]:
    rule = await autopilots.get(tx, trigger.autopilot_id)
    if rule is None or not await _sees(tx, actor, trigger.workspace_id):
        return []
    following = messages.next_fire(trigger, rule, await autopilots.now(tx))
    recent = await runs.page(tx, trigger.workspace_id, None, trigger.id, (), None, RECENT)
    return [explain_trigger(trigger, rule, following), *map(explain_run, recent)]


async def _autopilot(tx: Tx, actor: Actor, rule: Autopilot) -> list[Finding]:
    if not await _sees(tx, actor, rule.workspace_id):
        return []
    versions = await autopilots.versions(tx, rule.id, None, 1)
    publisher = "nobody on record"
    if versions:
        publisher = versions[0].publisher_user_id or "the system"
    finding = explain_autopilot(rule, publisher, await triggers.live(tx, rule.id))
    recent = await runs.page(tx, rule.workspace_id, rule.id, None, (), None, RECENT)
    return [finding, *map(explain_run, recent)]


async def _workspace(tx: Tx, actor: Actor, workspace_id: UUID) -> list[Finding]:
    workspace = await workspaces.get(tx, workspace_id)
    if workspace is None or not await _sees(tx, actor, workspace_id):
        return []
    synced, refusal = await workspaces.sync_state(tx, workspace_id)
    known = "knows it" if synced else "has not been told of it yet"
    if refusal:
        known = f"refuses it: {refusal}"
    finding = Finding(
        time=workspace.created_at,
        subject="workspace",
        subject_id=str(workspace.id),
        state="active" if synced else "unsynced",
        text=f"The workspace “{workspace.name}” ({workspace.issue_prefix}); heartbeat {known}.",
        rows=(("autopilot.workspaces", str(workspace.id)),),
    )
    return [finding]


async def _visible_runs(tx: Tx, actor: Actor, found: Sequence[Run]) -> list[Finding]:
    return [explain_run(run) for run in found if await _sees(tx, actor, run.workspace_id)]


async def _sees(tx: Tx, actor: Actor, workspace_id: UUID) -> bool:
    return (await standing_of(tx, actor, workspace_id)).belongs
