"""CheckoutIssue and ReleaseIssue: an attempt takes an issue, and somebody gives it back."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from reveille_heartbeat.domain.checkout import READY
from reveille_heartbeat.domain.states import ISSUE_TERMINAL, IssueState, RunState
from reveille_heartbeat.domain.values import Issue, Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.issues.authors import (
    Author,
    author_of,
    find_issue,
    is_below,
    note_progress,
    require_issue,
)
from reveille_heartbeat.usecases.issues.checking_out import check_out, conflict, live_runs
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView, view_of
from reveille_heartbeat.usecases.issues.moving import move_issue
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended
from reveille_runtime import feed
from reveille_runtime.access import Actor, Role
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition, NotFound, PermissionDenied
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


class CheckoutIssue:
    """Decides who owns an issue."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, consequences: Consequences
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._consequences = consequences

    async def check_out(
        self, actor: Actor, ref: IssueRef, run_id: UUID, expected: Collection[IssueState]
    ) -> IssueView:
        """Make a run the owner; for the one that owns it already this changes nothing.

        Raises:
            NotFound: the caller cannot see issue or run, or the issue is outside of the run's work.
            FailedPrecondition: the run has ended, or the issue is held or blocked.
            Aborted: another attempt owns it, or it is not in an expected status.
        """

        async def take(tx: Tx) -> IssueView:
            issue, author = await self._locked(tx, actor, ref)
            run = author.run or await _run_of(tx, issue, run_id)
            if run.run_id != run_id:
                raise NotFound("NOT_FOUND", f"run {run_id} does not exist, or is not yours")
            return await view_of(tx, await check_out(tx, issue, run, expected or READY))

        view = await retrying_transaction(self._db, take, repeatable=True)
        self._notifier.notify(channels.FEED)
        return view

    async def release(self, actor: Actor, ref: IssueRef, *, force: bool) -> IssueView:
        """Give it back; what waits for the one who had it ends.

        Raises:
            NotFound: the caller cannot see it. Aborted: another attempt owns it.
            PermissionDenied: it is neither the caller's nor the caller an administrator.
        """
        ended = Ended()

        async def give(tx: Tx) -> IssueView:
            ended.clear()
            issue, author = await self._locked(tx, actor, ref)
            await _require_owner(tx, actor, author, issue, force=force)
            freed = await _give_back(tx, issue, author)
            await note_progress(tx, author)
            await self._consequences.follow(tx, [(issue, freed)], author, ended)
            return await view_of(tx, freed)

        view = await retrying_transaction(self._db, give)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return view

    async def _locked(self, tx: Tx, actor: Actor, ref: IssueRef) -> tuple[Issue, Author]:
        issue_id = await id_of(tx, actor, ref)
        await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        return issue, await author_of(tx, actor, issue)


async def _run_of(tx: Tx, issue: Issue, run_id: UUID) -> Run:
    """Give the run that a person names: it lives, and works on the issue or on what is above."""
    await tx.fetch(Q["lock_runs"], [run_id])
    rows = await tx.fetch(Q["find_runs"], [run_id])
    run = to_run(rows[0]) if rows else None
    if (
        run is None
        or run.workspace_id != issue.workspace_id
        or run.issue_id is None
        or not await is_below(tx, issue.issue_id, run.issue_id)
    ):
        raise NotFound("NOT_FOUND", f"run {run_id} does not exist, or does not work on this issue")
    if run.state is not RunState.RUNNING:
        raise FailedPrecondition("WRONG_STATE", f"run {run_id} is not at work")
    return run


async def _require_owner(
    tx: Tx, actor: Actor, author: Author, issue: Issue, *, force: bool
) -> None:
    """An attempt gives back what is its agent's, a person what is theirs; administrators force it.

    Raises:
        PermissionDenied: it is not the caller's. Aborted: another attempt owns it.
    """
    if force:
        actor.require_member(issue.workspace_id, Role.ADMIN)
        return
    owner = issue.checkout_run_id
    if owner is not None and owner in await live_runs(tx, issue):
        if author.run is None or author.run.run_id != owner:
            raise conflict(issue)
        return
    if author.run is not None:
        if issue.assignee_agent_id != author.agent_id:
            raise conflict(issue)
    elif issue.assignee_user_id != author.user_id:
        raise PermissionDenied(
            "ROLE_TOO_WEAK",
            f"issue {issue.identifier} is not assigned to you; administrators may force it",
        )


async def _give_back(tx: Tx, issue: Issue, author: Author) -> Issue:
    row = await tx.fetchrow(Q["disown_issue"], issue.issue_id)
    if row is None:
        raise AssertionError("the lock is held, and nobody deletes rows of issues")
    freed = to_issue(row)
    changed = ["assignee_agent_id", "assignee_user_id", "checkout_run_id"]
    await feed.append(tx, [events.issue_updated(freed, issue.status, changed)])
    if freed.status in ISSUE_TERMINAL or freed.status is IssueState.TODO:
        return freed
    return await move_issue(tx, freed, IssueState.TODO, author.agent_id) or freed
