"""AddRelation and RemoveRelation: which issue waits for which."""

from __future__ import annotations

from uuid import UUID

from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.issues.authors import (
    Author,
    author_of,
    find_issue,
    note_progress,
    require_issue,
)
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_graph import check_blockers, lock_graph
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView, view_of
from reveille_heartbeat.usecases.issues.moving import place_runs
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


class RelateIssues:
    """Ties issues to each other, one change of a workspace's graph at a time."""

    def __init__(self, db: Database, notifier: Notifier, consequences: Consequences) -> None:
        self._db = db
        self._notifier = notifier
        self._consequences = consequences

    async def add(self, actor: Actor, ref: IssueRef, blocker: IssueRef) -> IssueView:
        """Make one issue block another; repeating changes nothing.

        Raises:
            NotFound: the caller cannot see the issue. FailedPrecondition: the run has ended.
            InvalidArgument: the blocker is not there, or would close a circle.
        """

        async def add(tx: Tx) -> IssueView:
            issue, blocker_id, author = await self._locked(tx, actor, ref, blocker)
            field = "blocker_issue_id"
            await check_blockers(tx, issue.workspace_id, issue.issue_id, [blocker_id], field)
            if await tx.fetch(Q["insert_relations"], issue.issue_id, [blocker_id]):
                issue = await self._changed(tx, issue, author)
                await place_runs(tx, [issue.issue_id])
            return await view_of(tx, issue)

        return await self._done(await retrying_transaction(self._db, add, repeatable=True))

    async def remove(self, actor: Actor, ref: IssueRef, blocker: IssueRef) -> IssueView:
        """Have one issue block another no more; repeating changes nothing.

        Raises:
            NotFound: the caller cannot see the issue. FailedPrecondition: the run has ended.
        """

        async def remove(tx: Tx) -> IssueView:
            issue, blocker_id, author = await self._locked(tx, actor, ref, blocker)
            if await tx.execute(Q["delete_relation"], issue.issue_id, blocker_id):
                issue = await self._changed(tx, issue, author)
                await self._consequences.free(tx, [issue.issue_id])
            return await view_of(tx, issue)

        return await self._done(await retrying_transaction(self._db, remove, repeatable=True))

    async def _locked(
        self, tx: Tx, actor: Actor, ref: IssueRef, blocker: IssueRef
    ) -> tuple[Issue, UUID, Author]:
        issue_id = await id_of(tx, actor, ref)
        known = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        blocker_id = await id_of(tx, actor, blocker, known.workspace_id, "blocker_issue_id")
        locks = LockOrder()
        await lock_graph(tx, locks, known.workspace_id)
        await locks.take(tx, Level.ISSUE, Q["lock_issues"], [issue_id, blocker_id])
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        return issue, blocker_id, await author_of(tx, actor, issue)

    async def _changed(self, tx: Tx, issue: Issue, author: Author) -> Issue:
        told = author.agent_id is None or author.agent_id != issue.assignee_agent_id
        row = await tx.fetchrow(Q["touch_issue"], issue.issue_id, told)
        if row is None:
            raise AssertionError("the lock is held, and nobody deletes rows of issues")
        changed = to_issue(row)
        await note_progress(tx, author)
        await feed.append(tx, [events.issue_updated(changed, issue.status, ["blocker_issue_ids"])])
        return changed

    async def _done(self, view: IssueView) -> IssueView:
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return view
