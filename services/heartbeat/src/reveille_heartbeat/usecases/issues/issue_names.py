"""The names of an issue: its id and its identifier, in any case, mean one and the same row."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from reveille_heartbeat.store.queries import Q
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Tx
from reveille_runtime.errors import InvalidArgument, NotFound

# An id, or an identifier in capitals; `parse.issue_ref` makes it.
IssueRef = UUID | str


async def ids_of_identifiers(
    tx: Tx, names: Collection[tuple[UUID, str]]
) -> dict[tuple[UUID, str], UUID]:
    """Find issues by workspace and identifier, a batch at once; unknown ones are missing."""
    if not names:
        return {}
    wanted = sorted(set(names))
    rows = await tx.fetch(
        Q["issues_by_identifier"], [name for _, name in wanted], [space for space, _ in wanted]
    )
    return {(row["workspace_id"], row["identifier"]): row["issue_id"] for row in rows}


async def id_of(
    tx: Tx, actor: Actor, ref: IssueRef, workspace_id: UUID | None = None, field: str = "issue_id"
) -> UUID:
    """Give the id of the issue that a caller names.

    Raises:
        NotFound: no issue that the caller may know of has this identifier.
        InvalidArgument: several workspaces of the caller have it.
    """
    if isinstance(ref, UUID):
        return ref
    where = _workspaces(actor)
    if workspace_id is not None:
        where = [workspace_id] if where is None or workspace_id in where else []
    rows = await tx.fetch(Q["issues_of_identifier"], ref, where)
    found = [row["issue_id"] for row in rows]
    if not found:
        raise NotFound(
            "NOT_FOUND", f"issue {ref} does not exist, or is not yours", {"identifier": ref}
        )
    if len(found) > 1:
        raise InvalidArgument.of(field, f"several workspaces have an issue {ref}: give its id")
    issue_id: UUID = found[0]
    return issue_id


def _workspaces(actor: Actor) -> list[UUID] | None:
    """Name the workspaces in which a caller may see issues; None: all of them."""
    if actor.kind is CallerKind.SERVICE or actor.operator:
        return None
    if actor.kind is CallerKind.USER:
        return list(actor.roles)
    return [] if actor.workspace_id is None else [actor.workspace_id]
