"""Pages of rows, the same way for everything that is listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.visible import unknown_workspace
from reveille_runtime.db import Tx
from reveille_runtime.paging import Page

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A page of rows, and whether there are more."""

    rows: tuple[T, ...]
    more: bool


def to_page(rows: Sequence[T], page: Page) -> Listed[T]:
    """Cut the row that only tells whether there is another page."""
    return Listed(tuple(rows[: page.size]), len(rows) > page.size)


def id_after(page: Page) -> UUID | None:
    """Give the id that a page comes after; None at the start."""
    return None if page.after is None else UUID(str(page.after[0]))


def text_after(page: Page) -> str | None:
    """Give the name that a page comes after; None at the start."""
    return None if page.after is None else str(page.after[0])


async def require_known(tx: Tx, workspace_id: UUID, rows: Sequence[object]) -> None:
    """Tell an empty list from a workspace that is not there, for callers who belong everywhere.

    Raises:
        NotFound: there are no rows because there is no such workspace.
    """
    if not rows and not await tx.fetch(Q["find_workspaces"], [workspace_id]):
        raise unknown_workspace(workspace_id)
