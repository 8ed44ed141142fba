"""Moves of issues, inside the transaction of whoever moves them.

Who moves an issue into an end or out of one holds the locks of the issue, of what it blocks and of
what it is a part of, taken in one statement (`lock_related`). Queued runs get their new place in
the queue here; whom the move concerns is told by `consequences`.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.queue import ready_rank
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState, may_move
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import events
from reveille_runtime import feed
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder


async def related_ids(tx: Tx, issue_ids: Collection[UUID]) -> set[UUID]:
    """Name issues, what they block and what they are parts of."""
    rows = await tx.fetch(Q["related_issues"], sorted(issue_ids))
    return {row["issue_id"] for row in rows}


async def lock_related(
    tx: Tx, locks: LockOrder, issue_ids: Collection[UUID], *, besides: Collection[UUID] = ()
) -> None:
    """Lock all that a move of these issues into or out of an end concerns, in one statement.

    What was related while the locks were awaited is found by a second look, and has the whole
    transaction repeated.
    """
    if not issue_ids:
        return
    ids = await related_ids(tx, issue_ids)
    await locks.take(tx, Level.ISSUE, Q["lock_issues"], ids | set(besides))
    if not await related_ids(tx, issue_ids) <= ids | set(besides):
        raise asyncpg.SerializationError("the relations of an issue changed before it was locked")


def crosses_end(current: IssueState, target: IssueState) -> bool:
    """Tell whether a move ends an issue, or opens it again."""
    return (current in ISSUE_TERMINAL) is not (target in ISSUE_TERMINAL)


async def move_issue(
    tx: Tx, issue: Issue, target: IssueState, by_agent: UUID | None = None
) -> Issue | None:
    """Move an issue whose lock is held; None when it stays where it is.

    Runs that wait for it, or for what it blocks, get their new place in the queue. What else
    follows from the move, `Consequences.follow` does.
    """
    if not may_move(issue.status, target):
        return None
    return await set_status(tx, issue, target, by_agent)


async def set_status(
    tx: Tx, issue: Issue, target: IssueState, by_agent: UUID | None = None
) -> Issue | None:
    """Set the status by compare-and-set; None when somebody else has moved it."""
    told = by_agent is None or by_agent != issue.assignee_agent_id
    row = await tx.fetchrow(Q["move_issue"], issue.issue_id, issue.status.value, target.value, told)
    if row is None:
        # Only possible without the lock; the move is then somebody else's.
        return None
    moved = to_issue(row)
    waiting = {moved.issue_id}
    if crosses_end(issue.status, target):
        waiting |= await dependents_of(tx, waiting)
    await place_runs(tx, waiting)
    await feed.append(tx, [events.issue_updated(moved, issue.status, ("status",))])
    return moved


async def dependents_of(tx: Tx, issue_ids: Collection[UUID]) -> set[UUID]:
    """Name what issues block."""
    rows = await tx.fetch(Q["dependents"], sorted(issue_ids))
    return {row["issue_id"] for row in rows}


async def place_runs(tx: Tx, issue_ids: Collection[UUID]) -> None:
    """Give the runs that wait for issues the place that their status, blockers and priority give.

    The caller holds the locks of the issues.
    """
    places = await tx.fetch(Q["queue_places"], sorted(issue_ids))
    wrong = []
    for row in places:
        rank = ready_rank(IssueState(row["status"]), waits=row["waits"])
        if (rank, row["issue_priority"]) != (row["ready_rank"], row["priority"]):
            wrong.append((row["run_id"], rank, row["issue_priority"]))
    if wrong:
        runs, ranks, priorities = zip(*wrong, strict=True)
        await tx.execute(Q["place_runs"], list(runs), list(ranks), list(priorities))
