"""Wishes to wake agents about an issue, in the transaction of what gives rise to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from reveille_heartbeat.domain.values import Issue, Origin, Payload, WakeupSource, Wish
from reveille_heartbeat.domain.wakes import WakeReason
from reveille_heartbeat.usecases.issues.authors import Author
from reveille_runtime.carrier import inject

NewId = Callable[[], UUID]


def wish_about(
    issue: Issue,
    agent_id: UUID,
    reason: WakeReason,
    author: Author,
    new_id: NewId,
    *,
    source: WakeupSource = WakeupSource.AUTOMATION,
    prompt: str = "",
    key: str | None = None,
    comment_ids: Sequence[UUID] = (),
    context: Mapping[str, Any] | None = None,
) -> Wish:
    """Make a wish; where nothing particular is asked, the issue says what is to be done."""
    return Wish(
        wakeup_id=new_id(),
        workspace_id=issue.workspace_id,
        agent_id=agent_id,
        source=source,
        wake_reason=reason.value,
        title=issue.title,
        prompt=prompt or issue.description,
        issue_id=issue.issue_id,
        caller=author.caller,
        idempotency_key=key,
        origin=Origin(originator_user_id=author.user_id, trace_carrier=inject()),
        payload=Payload(),
        requester=author.requester,
        comment_ids=tuple(comment_ids),
        context=dict(context or {}),
    )
