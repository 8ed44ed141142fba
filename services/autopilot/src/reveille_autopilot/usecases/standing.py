"""What the caller is in a workspace, by this service's own rows, and the refusals it leads to."""

from __future__ import annotations

from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot, Trigger
from reveille_autopilot.domain.permissions import Standing
from reveille_autopilot.store import autopilots, people, triggers, workspaces
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Tx
from reveille_runtime.errors import DomainError, NotFound, PermissionDenied


async def standing_of(tx: Tx, actor: Actor, workspace_id: UUID) -> Standing:
    """Read what the caller is there; a token's own roles do not count here."""
    match actor.kind:
        case CallerKind.SERVICE:
            return Standing(None, None, service=True)
        case CallerKind.USER:
            role = await workspaces.role_of(tx, workspace_id, actor.subject)
            return Standing(actor.subject, role, operator=actor.operator)
        case CallerKind.RUN | CallerKind.RUNTIME:
            return Standing(None, None)
        case _:
            assert_never(actor.kind)


def not_found(kind: str, some_id: object) -> NotFound:
    """Make the one answer for what does not exist and for what is not the caller's."""
    return NotFound(
        "NOT_FOUND",
        f"{kind} {some_id} does not exist, or is not yours",
        {"kind": kind, "id": str(some_id)},
    )


def too_weak(needed: str) -> DomainError:
    """Make the refusal of a member who may see a thing but not do that to it."""
    return PermissionDenied("ROLE_TOO_WEAK", f"this needs {needed}", {"needed": needed})


async def in_workspace(tx: Tx, actor: Actor, workspace_id: UUID) -> Standing:
    """Let members of a workspace in, and whoever counts as one."""
    standing = await standing_of(tx, actor, workspace_id)
    if not standing.belongs or await workspaces.get(tx, workspace_id) is None:
        raise not_found("workspace", workspace_id)
    return standing


async def readable_autopilot(
    tx: Tx, actor: Actor, autopilot_id: UUID
) -> tuple[Autopilot, Standing]:
    """Read a rule that the caller may see."""
    found = await autopilots.get(tx, autopilot_id)
    if found is not None:
        standing = await standing_of(tx, actor, found.workspace_id)
        if standing.belongs:
            return found, standing
    raise not_found("autopilot", autopilot_id)


async def readable_trigger(tx: Tx, actor: Actor, trigger_id: UUID) -> tuple[Trigger, Standing]:
    """Read a trigger that the caller may see, deleted or not."""
    found = await triggers.get(tx, trigger_id)
    if found is not None:
        standing = await standing_of(tx, actor, found.workspace_id)
        if standing.belongs:
            return found, standing
    raise not_found("trigger", trigger_id)


WRITERS = "the rule's creator, a collaborator, or an administrator or owner of the workspace"


async def may_write(tx: Tx, standing: Standing, rule: Autopilot) -> bool:
    """Tell whether the caller may change a rule."""
    collaborates = await _collaborates(tx, standing, rule)
    return standing.may_write(rule.creator_user_id, collaborates=collaborates)


async def may_run(tx: Tx, standing: Standing, rule: Autopilot) -> bool:
    """Tell whether the caller may run a rule now."""
    collaborates = await _collaborates(tx, standing, rule)
    return standing.may_run(rule.creator_user_id, collaborates=collaborates)


async def require_writer(tx: Tx, standing: Standing, rule: Autopilot) -> str:
    """Let the writers of a rule pass; gives the editor who answers for the change."""
    if standing.user_id is None or not await may_write(tx, standing, rule):
        raise too_weak(WRITERS)
    return standing.user_id


def require_granter(standing: Standing, rule: Autopilot) -> str:
    """Let those pass who may let others change a rule."""
    if standing.user_id is None or not standing.may_grant(rule.creator_user_id):
        raise too_weak("the rule's creator, or an administrator or owner of the workspace")
    return standing.user_id


async def _collaborates(tx: Tx, standing: Standing, rule: Autopilot) -> bool:
    if standing.user_id is None:
        return False
    return rule.id in await people.collaborates(tx, [rule.id], standing.user_id)
