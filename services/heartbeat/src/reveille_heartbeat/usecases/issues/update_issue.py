"""UpdateIssue: a person, a service, or the run at work changes an issue."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from reveille_heartbeat.crash_points import ISSUE_STOPPED_AFTER_COMMIT
from reveille_heartbeat.domain.issue_edits import FOR_PEOPLE, IssueChange, differing
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, may_move
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.etags import require_etag
from reveille_heartbeat.usecases.issues.authors import (
    Author,
    author_of,
    find_issue,
    note_progress,
    require_issue,
)
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_graph import (
    check_agents,
    check_parent,
    check_project,
    lock_graph,
)
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView, view_of
from reveille_heartbeat.usecases.issues.moving import lock_related, move_issue, place_runs
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_issue_wakeups
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition, PermissionDenied
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import LockOrder


class UpdateIssue:
    """Changes what is named; an issue that is cancelled takes its wakeups with it."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, consequences: Consequences
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._consequences = consequences

    async def __call__(
        self,
        actor: Actor,
        ref: IssueRef,
        change: IssueChange,
        *,
        parent: IssueRef | None = None,
        etag: str = "",
    ) -> IssueView:
        """Change it; values that it has already change nothing. `parent` is as the caller names it.

        Raises:
            NotFound: the caller cannot see it. Aborted: it changed since the caller read it.
            InvalidArgument: a field refers to what is not there.
            FailedPrecondition: no arrow leads there, or the run that asks has ended.
            PermissionDenied: the field is not for this caller.
        """
        ended = Ended()

        async def update(tx: Tx) -> IssueView:
            ended.clear()
            return await self._in(tx, actor, ref, change, parent, etag, ended)

        view = await retrying_transaction(self._db, update)
        crash_point(ISSUE_STOPPED_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        self._notifier.notify(channels.QUEUE)
        return view

    async def _in(
        self,
        tx: Tx,
        actor: Actor,
        ref: IssueRef,
        change: IssueChange,
        parent: IssueRef | None,
        etag: str,
        ended: Ended,
    ) -> IssueView:
        locks = LockOrder()
        issue_id = await id_of(tx, actor, ref)
        besides: list[UUID] = []
        if "parent_issue_id" in change.values:
            known = require_issue(actor, await find_issue(tx, issue_id), issue_id)
            if parent is not None:
                place = known.workspace_id
                besides = [await id_of(tx, actor, parent, place, "parent_issue_id")]
            change = _with_parent(change, besides)
            await lock_graph(tx, locks, known.workspace_id)
        await lock_related(tx, locks, [issue_id], besides=besides)
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        author = await author_of(tx, actor, issue)
        if author.run is not None and change.named & FOR_PEOPLE:
            names = ", ".join(sorted(change.named & FOR_PEOPLE))
            raise PermissionDenied(
                "CALLER_NOT_ALLOWED", f"a run may not change {names}", {"field": names}
            )
        require_etag(etag, issue, f"issue {issue.identifier}")
        wanted = change.applied_to(issue)
        await self._check(tx, author, issue, wanted, change.status)
        after = await self._edit(tx, issue, wanted, change, author)
        if change.status is not None and change.status is not issue.status:
            moved = await move_issue(tx, after, change.status, author.agent_id)
            if moved is None:
                raise AssertionError("the lock is held and the move was judged")
            after = moved
        if after.revision != issue.revision:
            await note_progress(tx, author)
        if after.status is not issue.status and after.status is IssueState.CANCELLED:
            await cancel_issue_wakeups(
                tx, issue_id, Reason.ISSUE_CANCELLED, "its issue was cancelled", ended
            )
        await self._consequences.follow(tx, [(issue, after)], author, ended)
        return await view_of(tx, after)

    async def _check(
        self, tx: Tx, author: Author, issue: Issue, wanted: Issue, status: IssueState | None
    ) -> None:
        changed = set(differing(issue, wanted))
        agents: dict[str, UUID | None] = {
            name: getattr(wanted, name)
            for name in ("assignee_agent_id", "reviewer_agent_id")
            if name in changed
        }
        await check_agents(tx, author, issue.workspace_id, agents)
        if "project_id" in changed:
            await check_project(tx, issue.workspace_id, wanted.project_id)
        if "parent_issue_id" in changed and wanted.parent_issue_id is not None:
            await check_parent(tx, issue.workspace_id, issue, wanted.parent_issue_id)
        if status not in (None, issue.status) and not may_move(issue.status, status):
            raise FailedPrecondition(
                "WRONG_STATE",
                f"issue {issue.identifier} is {issue.status.value} and cannot become"
                f" {status.value}",
                {"status": issue.status.value, "target": status.value},
            )

    async def _edit(
        self, tx: Tx, issue: Issue, wanted: Issue, change: IssueChange, author: Author
    ) -> Issue:
        changed = differing(issue, wanted)
        told = author.agent_id is None or author.agent_id != issue.assignee_agent_id
        edited = issue
        if changed:
            row = await tx.fetchrow(
                Q["edit_issue"],
                issue.issue_id,
                issue.revision,
                wanted.title,
                wanted.description,
                wanted.priority,
                wanted.assignee_agent_id,
                wanted.assignee_user_id,
                wanted.reviewer_agent_id,
                wanted.reviewer_user_id,
                wanted.project_id,
                wanted.parent_issue_id,
                wanted.responsible_user_id,
                told,
                issue.assignee_agent_id != wanted.assignee_agent_id,
            )
            if row is None:
                raise AssertionError("the lock is held and the revision was read under it")
            edited = to_issue(row)
        if change.subscribers is not None:
            await set_subscribers(tx, issue.issue_id, change.subscribers)
            if not changed:
                row = await tx.fetchrow(Q["touch_issue"], issue.issue_id, False)
                edited = edited if row is None else to_issue(row)
            changed = (*changed, "subscriber_user_ids")
        if changed:
            await feed.append(tx, [events.issue_updated(edited, issue.status, changed)])
        if "priority" in changed:
            await place_runs(tx, [issue.issue_id])
        return edited


async def set_subscribers(tx: Tx, issue_id: UUID, users: tuple[str, ...]) -> None:
    """Make these people, and no others, those who hear of an issue."""
    await tx.execute(Q["unsubscribe_others"], issue_id, list(users))
    await tx.execute(Q["subscribe"], issue_id, list(users))


def _with_parent(change: IssueChange, parent: list[UUID]) -> IssueChange:
    values = {**change.values, "parent_issue_id": parent[0] if parent else None}
    return replace(change, values=values)
