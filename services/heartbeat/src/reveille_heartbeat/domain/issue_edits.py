"""Changes of issues as callers ask for them: only what is named, and what is empty is cleared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Issue

# What a run may not decide about the work that it was given.
FOR_PEOPLE = frozenset(
    {"parent_issue_id", "project_id", "responsible_user_id", "subscriber_user_ids"}
)
# A piece of work belongs to one, and is judged by one.
_EITHER = (
    ("assignee_agent_id", "assignee_user_id"),
    ("reviewer_agent_id", "reviewer_user_id"),
)


@dataclass(frozen=True, slots=True)
class IssueChange:
    """New values by the names of the issue's fields; what is not named stays."""

    values: Mapping[str, Any] = field(default_factory=dict)
    status: IssueState | None = None
    subscribers: tuple[str, ...] | None = None

    @property
    def named(self) -> frozenset[str]:
        """Which fields the caller names."""
        names = set(self.values)
        names |= {"status"} if self.status is not None else set()
        names |= {"subscriber_user_ids"} if self.subscribers is not None else set()
        return frozenset(names)

    def applied_to(self, issue: Issue) -> Issue:
        """Give the issue with the new values; a new owner or judge takes the other's place."""
        values = dict(self.values)
        for agent, user in _EITHER:
            if values.get(agent) and user not in values:
                values[user] = ""
            if values.get(user) and agent not in values:
                values[agent] = None
        return replace(issue, **values)


def differing(before: Issue, after: Issue) -> tuple[str, ...]:
    """Name the fields that an edit changes."""
    return tuple(name for name in EDITABLE if getattr(before, name) != getattr(after, name))


EDITABLE = (
    "title",
    "description",
    "priority",
    "assignee_agent_id",
    "assignee_user_id",
    "reviewer_agent_id",
    "reviewer_user_id",
    "project_id",
    "parent_issue_id",
    "responsible_user_id",
)
