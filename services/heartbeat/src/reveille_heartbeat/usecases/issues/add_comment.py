"""AddComment: something is said about an issue, and whom it is for is woken."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.discussion import Comment
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState
from reveille_heartbeat.domain.values import Issue, Wish
from reveille_heartbeat.domain.wakes import WakeReason
from reveille_heartbeat.store.issue_rows import to_comment
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_wakeup
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.issues.authors import (
    Author,
    author_of,
    find_issue,
    note_progress,
    require_issue,
)
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_graph import check_agents
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_wishes import NewId, wish_about
from reveille_heartbeat.usecases.issues.moving import lock_related, move_issue
from reveille_heartbeat.usecases.repeats import Repeatable, made_all, made_all_before
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import LockOrder


@dataclass(frozen=True, slots=True)
class NewComment:
    """Something to say."""

    comment_id: UUID
    ref: IssueRef
    body: str
    mentioned_agent_ids: tuple[UUID, ...]
    repeatable: Repeatable | None


@dataclass(frozen=True, slots=True)
class Commented:
    """What was said, and whom it woke."""

    comment: Comment
    wakeups: tuple[Enqueued, ...]


class AddComment:
    """A person's comment on an ended issue of an agent opens it again; an agent's never does."""

    def __init__(
        self, db: Database, notifier: Notifier, consequences: Consequences, new_id: NewId
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._consequences = consequences
        self._new_id = new_id

    async def __call__(self, actor: Actor, new: NewComment) -> Commented:
        """Write it down, or answer with what the same request wrote before.

        Raises:
            NotFound: the caller cannot see the issue. FailedPrecondition: the run has ended.
            InvalidArgument: an agent that is mentioned is not there, or the request id was used.
            PermissionDenied: an agent that is mentioned is not the caller's to wake.
        """

        async def add(tx: Tx) -> Commented:
            return await self._in(tx, actor, new)

        answer = await retrying_transaction(self._db, add, repeatable=new.repeatable is not None)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return answer

    async def _in(self, tx: Tx, actor: Actor, new: NewComment) -> Commented:
        before = await made_all_before(tx, new.repeatable)
        if before is not None:
            return await _made(tx, before)
        issue_id = await id_of(tx, actor, new.ref)
        await lock_related(tx, LockOrder(), [issue_id])
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        author = await author_of(tx, actor, issue)
        mentioned = {
            f"mentioned_agent_ids[{at}]": agent_id
            for at, agent_id in enumerate(new.mentioned_agent_ids)
        }
        await check_agents(tx, author, issue.workspace_id, mentioned)
        comment = await write_comment(tx, issue, author, new.comment_id, new.body)
        await note_progress(tx, author)
        wishes = await self._wishes(tx, issue, author, comment, new.mentioned_agent_ids)
        wakeups = await self._consequences.wake(tx, wishes)
        ids = [comment.comment_id, *(each.wakeup_id for each in wakeups)]
        await made_all(tx, new.repeatable, ids)
        return Commented(comment, tuple(wakeups))

    async def _wishes(
        self,
        tx: Tx,
        issue: Issue,
        author: Author,
        comment: Comment,
        mentioned: tuple[UUID, ...],
    ) -> list[Wish]:
        reasons: dict[UUID, WakeReason] = {}
        assignee = issue.assignee_agent_id
        if assignee is not None and assignee != author.agent_id:
            if issue.status not in ISSUE_TERMINAL:
                reasons[assignee] = WakeReason.ISSUE_COMMENTED
            elif author.is_person:
                issue = await move_issue(tx, issue, IssueState.TODO) or issue
                reasons[assignee] = WakeReason.ISSUE_REOPENED_VIA_COMMENT
        for agent_id in mentioned:
            if agent_id != author.agent_id:
                reasons.setdefault(agent_id, WakeReason.ISSUE_COMMENT_MENTIONED)
        return [
            wish_about(
                issue,
                agent_id,
                reason,
                author,
                self._new_id,
                prompt=comment.body,
                comment_ids=[comment.comment_id],
            )
            for agent_id, reason in reasons.items()
        ]


async def write_comment(
    tx: Tx, issue: Issue, author: Author, comment_id: UUID, body: str
) -> Comment:
    """Add a comment to an issue whose lock is held, and tell of it."""
    row = await tx.fetchrow(
        Q["insert_comment"],
        comment_id,
        issue.issue_id,
        issue.workspace_id,
        author.requester.kind.value,
        author.requester.id,
        None if author.run is None else author.run.run_id,
        body,
    )
    if row is None:
        raise AssertionError("an INSERT without ON CONFLICT gives its row or fails")
    comment = to_comment(row)
    told = author.agent_id is None or author.agent_id != issue.assignee_agent_id
    if told:
        await tx.execute(Q["note_input"], issue.issue_id)
    await feed.append(tx, [events.issue_commented(issue, comment)])
    return comment


async def _made(tx: Tx, ids: list[UUID]) -> Commented:
    comment_id, *wakeup_ids = ids
    comment = to_comment((await tx.fetch(Q["find_comments"], [comment_id]))[0])
    rows = await tx.fetch(Q["find_wakeups"], wakeup_ids) if wakeup_ids else []
    found = {row["wakeup_id"]: Enqueued.of(to_wakeup(row)) for row in rows}
    return Commented(comment, tuple(found[each] for each in wakeup_ids if each in found))
