"""Rows of other workspaces look as if they did not exist."""

from __future__ import annotations

from typing import Protocol, TypeVar
from uuid import UUID

from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.errors import NotFound


class InWorkspace(Protocol):
    """A row that belongs to a workspace."""

    @property
    def workspace_id(self) -> UUID:
        """The workspace."""
        ...


T = TypeVar("T", bound=InWorkspace)


def is_visible(actor: Actor, row: InWorkspace) -> bool:
    """Tell whether the caller may know of a row."""
    return actor.role_in(row.workspace_id) is not None


def require_visible(actor: Actor, row: T | None, kind: str, row_id: UUID) -> T:
    """Give the row.

    Raises:
        NotFound: there is none, or none that this caller may know of.
    """
    if row is None or not is_visible(actor, row):
        raise NotFound(
            "NOT_FOUND", f"{kind} {row_id} does not exist, or is not yours", {"id": str(row_id)}
        )
    return row


def unknown_workspace(workspace_id: UUID) -> NotFound:
    """Make the answer that a stranger to a workspace gets, for one that is not there."""
    return NotFound(
        "NOT_FOUND",
        f"workspace {workspace_id} does not exist, or is not yours",
        {"workspace_id": str(workspace_id)},
    )


def require_own_run(actor: Actor, run_id: UUID) -> None:
    """A run may read about itself, and about no other run.

    Raises:
        NotFound: it asks about another.
    """
    if actor.kind is CallerKind.RUN and actor.run_id != run_id:
        raise NotFound("NOT_FOUND", f"run {run_id} does not exist, or is not yours")
