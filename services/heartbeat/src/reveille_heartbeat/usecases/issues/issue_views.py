"""Issues with what belongs to them, as they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.obstacles import HoldOver
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.issues.obstacles import holds_over
from reveille_runtime.db import Tx


@dataclass(frozen=True, slots=True)
class IssueView:
    """An issue, what blocks it, who wants to hear of it, and the hold over it."""

    issue: Issue
    blocker_ids: tuple[UUID, ...]
    subscribers: tuple[str, ...]
    hold: HoldOver | None


async def views_of(tx: Tx, issues: Sequence[Issue]) -> list[IssueView]:
    """Read what belongs to issues; one statement for each kind of it."""
    ids = [issue.issue_id for issue in issues]
    if not ids:
        return []
    details = {row["issue_id"]: row for row in await tx.fetch(Q["issue_details"], ids)}
    holds = await holds_over(tx, ids)
    return [
        IssueView(
            issue,
            tuple(details[issue.issue_id]["blockers"]),
            tuple(details[issue.issue_id]["subscribers"]),
            holds.get(issue.issue_id),
        )
        for issue in issues
    ]


async def view_of(tx: Tx, issue: Issue) -> IssueView:
    """Read what belongs to an issue."""
    return (await views_of(tx, [issue]))[0]
