"""UpdateIssue: a person, a service, or the run at work moves an issue."""

from __future__ import annotations

from uuid import UUID

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import IssueState, RunState
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run
from reveille_heartbeat.usecases.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.ending import Ended, cancel_wakeup
from reveille_heartbeat.usecases.moving import may_move, move_issue
from reveille_heartbeat.usecases.run_spans import RunSpans
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import Aborted, FailedPrecondition, NotFound
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


def etag_of(issue: Issue) -> str:
    """Give what changes with every change."""
    return str(issue.revision)


class UpdateIssue:
    """Moves an issue by the table of transitions; a cancelled one takes its wakeups with it."""

    def __init__(self, db: Database, notifier: Notifier, spans: RunSpans) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans

    async def __call__(self, actor: Actor, issue_id: UUID, target: IssueState, etag: str) -> Issue:
        """Move it; the status that it has already changes nothing.

        Raises:
            NotFound: the caller cannot see it. Aborted: it changed since the caller read it.
            FailedPrecondition: no arrow leads there, or the run that asks does not work on it.
        """
        ended = Ended()

        async def update(tx: Tx) -> Issue:
            ended.runs.clear()
            return await self._in(tx, actor, issue_id, target, etag, ended)

        issue = await retrying_transaction(self._db, update)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return issue

    async def _in(
        self, tx: Tx, actor: Actor, issue_id: UUID, target: IssueState, etag: str, ended: Ended
    ) -> Issue:
        await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
        rows = await tx.fetch(Q["find_issues"], [issue_id])
        issue = to_issue(rows[0]) if rows else None
        issue = require_visible(actor, issue, "issue", issue_id)
        if actor.kind is CallerKind.RUN:
            await self._require_live(tx, actor, issue)
        if etag and etag != etag_of(issue):
            raise Aborted(
                "ETAG_MISMATCH",
                f"issue {issue.identifier} was changed since you read it",
                {"etag": etag_of(issue)},
            )
        if issue.status is target:
            return issue
        if not may_move(issue.status, target):
            raise FailedPrecondition(
                "WRONG_STATE",
                f"issue {issue.identifier} is {issue.status.value} and cannot become"
                f" {target.value}",
                {"status": issue.status.value, "target": target.value},
            )
        moved = await move_issue(tx, issue, target)
        if moved is None:
            raise AssertionError("the lock is held and the move was judged")
        if target is IssueState.CANCELLED:
            wakeups = await tx.fetch(Q["unsettled_wakeups_of_issue"], issue_id)
            for wakeup_id in sorted(row["wakeup_id"] for row in wakeups):
                await cancel_wakeup(
                    tx, wakeup_id, Reason.ISSUE_CANCELLED, "its issue was cancelled", ended
                )
        return moved

    async def _require_live(self, tx: Tx, actor: Actor, issue: Issue) -> None:
        """The run's token outlives the run; its right to write does not."""
        if actor.run_id is not None:
            await tx.fetch(Q["lock_runs"], [actor.run_id])
            rows = await tx.fetch(Q["find_runs"], [actor.run_id])
            run = to_run(rows[0]) if rows else None
            if run is not None and run.issue_id == issue.issue_id:
                if run.state is RunState.RUNNING:
                    return
                raise FailedPrecondition("WRONG_STATE", f"run {run.run_id} has ended")
        raise NotFound("NOT_FOUND", f"issue {issue.issue_id} does not exist, or is not yours")
