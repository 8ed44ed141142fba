"""Moves of issues, inside the transaction of whoever moves them."""

from __future__ import annotations

from reveille_heartbeat.domain.queue import ready_rank
from reveille_heartbeat.domain.states import ISSUE_TRANSITIONS, IssueState
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import events
from reveille_runtime import feed
from reveille_runtime.db import Tx


def may_move(current: IssueState, target: IssueState) -> bool:
    """Tell whether the table of transitions has this arrow."""
    return target in ISSUE_TRANSITIONS[current]


async def move_issue(tx: Tx, issue: Issue, target: IssueState) -> Issue | None:
    """Move an issue whose lock is held; None when it stays where it is.

    Runs that wait for it get their new place in the queue in the same transaction.
    """
    if not may_move(issue.status, target):
        return None
    row = await tx.fetchrow(Q["move_issue"], issue.issue_id, issue.status.value, target.value)
    if row is None:
        # Only possible without the lock; the move is then somebody else's.
        return None
    moved = to_issue(row)
    await tx.execute(Q["rank_queued_runs"], moved.issue_id, ready_rank(target))
    await feed.append(tx, [events.issue_updated(moved, issue.status)])
    return moved
