"""Reading what keeps issues from being worked on, a batch in one statement each."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from reveille_heartbeat.domain.obstacles import MAX_DEPTH, Blocker, HoldMode, HoldOver
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.store.queries import Q
from reveille_runtime.db import Tx


async def holds_over(tx: Tx, issue_ids: Collection[UUID]) -> dict[UUID, HoldOver]:
    """Give the nearest active hold over each issue that has one; a pause goes before a cancel."""
    found: dict[UUID, HoldOver] = {}
    if not issue_ids:
        return found
    for row in await tx.fetch(Q["holds_over_issues"], sorted(set(issue_ids)), MAX_DEPTH):
        found.setdefault(
            row["issue_id"],
            HoldOver(
                row["hold_id"],
                HoldMode(row["mode"]),
                row["reason"],
                row["root_issue_id"],
                row["root_identifier"],
            ),
        )
    return found


async def pausing_holds(tx: Tx, issue_ids: Collection[UUID]) -> dict[UUID, HoldOver]:
    """Give the hold that forbids work on each issue that has one.

    What a cancelling hold took is cancelled; whoever opens that again may work on it.
    """
    over = await holds_over(tx, issue_ids)
    return {issue_id: hold for issue_id, hold in over.items() if hold.mode is HoldMode.PAUSE}


async def open_blockers(tx: Tx, issue_ids: Collection[UUID]) -> dict[UUID, tuple[Blocker, ...]]:
    """Give what each issue still waits for; issues that wait for nothing are missing."""
    found: dict[UUID, tuple[Blocker, ...]] = {}
    if not issue_ids:
        return found
    for row in await tx.fetch(Q["open_blockers"], sorted(set(issue_ids))):
        blocker = Blocker(
            row["blocker_issue_id"], row["identifier"], row["title"], IssueState(row["status"])
        )
        found[row["issue_id"]] = (*found.get(row["issue_id"], ()), blocker)
    return found
