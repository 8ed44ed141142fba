"""Checkout inside a transaction: the one way by which an attempt comes to own an issue."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from reveille_heartbeat.domain.checkout import Claim, claim
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Issue, Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases.issues.moving import move_issue
from reveille_heartbeat.usecases.issues.obstacles import open_blockers, pausing_holds
from reveille_runtime.db import Tx
from reveille_runtime.errors import Aborted, FailedPrecondition


async def check_out(tx: Tx, issue: Issue, run: Run, expected: Collection[IssueState]) -> Issue:
    """Make an attempt the owner of an issue whose lock is held, and the issue in progress.

    Raises:
        FailedPrecondition: the issue is held, or waits for others.
        Aborted: another attempt owns it, or it is not in an expected status.
    """
    hold = (await pausing_holds(tx, [issue.issue_id])).get(issue.issue_id)
    if hold is not None:
        raise FailedPrecondition(
            "WRONG_STATE",
            f"issue {hold.root_identifier} and all below it are held",
            {"hold_id": str(hold.hold_id), "root_issue_id": str(hold.root_issue_id)},
        )
    blockers = (await open_blockers(tx, [issue.issue_id])).get(issue.issue_id, ())
    if blockers:
        names = ", ".join(blocker.identifier for blocker in blockers)
        raise FailedPrecondition(
            "WRONG_STATE", f"issue {issue.identifier} waits for {names}", {"blockers": names}
        )
    live = await live_runs(tx, issue)
    match claim(issue, run.run_id, run.agent_id, expected, live):
        case Claim.OWNED:
            return issue
        case Claim.CONFLICT:
            raise conflict(issue)
        case Claim.TAKE | Claim.ADOPT:
            return await _own(tx, issue, run)


async def live_runs(tx: Tx, issue: Issue) -> set[UUID]:
    """Give those of the attempts that an issue names that wait or work still."""
    named = {issue.checkout_run_id, issue.execution_run_id} - {None}
    if not named:
        return set()
    return {row["run_id"] for row in await tx.fetch(Q["live_runs"], list(named))}


def conflict(issue: Issue) -> Aborted:
    """Refuse with what is the case now, so that the caller can decide by itself."""
    return Aborted(
        "CHECKOUT_CONFLICT",
        f"issue {issue.identifier} is {issue.status.value}, and not this attempt's",
        {
            "status": issue.status.value,
            "assignee_agent_id": _text(issue.assignee_agent_id),
            "assignee_user_id": issue.assignee_user_id,
            "checkout_run_id": _text(issue.checkout_run_id),
            "execution_run_id": _text(issue.execution_run_id),
        },
    )


async def _own(tx: Tx, issue: Issue, run: Run) -> Issue:
    row = await tx.fetchrow(
        Q["own_issue"],
        issue.issue_id,
        run.agent_id,
        run.run_id,
        issue.status.value,
        issue.checkout_run_id,
        issue.execution_run_id,
    )
    if row is None:
        # The sweep of stale locks, which takes no lock, was faster; what it leaves is free.
        rows = await tx.fetch(Q["find_issues"], [issue.issue_id])
        raise conflict(to_issue(rows[0]))
    owned = to_issue(row)
    if owned.status is IssueState.IN_PROGRESS:
        return owned
    moved = await move_issue(tx, owned, IssueState.IN_PROGRESS, run.agent_id)
    return moved or owned


def _text(value: UUID | None) -> str:
    return "" if value is None else str(value)
