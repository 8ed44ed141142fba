"""DeleteIssue: it is there for nobody any more; its rows stay as its history."""

from __future__ import annotations

from reveille_heartbeat.crash_points import ISSUE_STOPPED_AFTER_COMMIT
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.store.issue_rows import to_approval
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.etags import require_etag
from reveille_heartbeat.usecases.issues.authors import find_issue, require_issue
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_graph import lock_graph
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.moving import lock_related
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_issue_wakeups
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import LockOrder


class DeleteIssue:
    """Takes an issue away, with all that waits for it or works on it."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, consequences: Consequences
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._consequences = consequences

    async def __call__(self, actor: Actor, ref: IssueRef, etag: str) -> None:
        """Delete it; one that is deleted already is not found.

        Raises:
            NotFound: the caller cannot see it. Aborted: it changed since the caller read it.
        """
        ended = Ended()

        async def delete(tx: Tx) -> None:
            ended.clear()
            await self._in(tx, actor, ref, etag, ended)

        await retrying_transaction(self._db, delete)
        crash_point(ISSUE_STOPPED_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        self._notifier.notify(channels.QUEUE)

    async def _in(self, tx: Tx, actor: Actor, ref: IssueRef, etag: str, ended: Ended) -> None:
        issue_id = await id_of(tx, actor, ref)
        known = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        locks = LockOrder()
        await lock_graph(tx, locks, known.workspace_id)
        await lock_related(tx, locks, [issue_id])
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        require_etag(etag, issue, f"issue {issue.identifier}")
        row = await tx.fetchrow(Q["delete_issue"], issue_id)
        if row is None:
            raise AssertionError("the lock is held, and it was not deleted")
        message = f"issue {issue.identifier} was deleted"
        await cancel_issue_wakeups(tx, issue_id, Reason.ISSUE_DELETED, message, ended)
        dropped = await tx.fetch(Q["drop_approvals_of_issue"], issue_id, actor.principal)
        await tx.execute(Q["release_holds_of_issue"], issue_id, actor.principal)
        relations = await tx.fetch(Q["delete_relations_of"], issue_id)
        await feed.append(
            tx,
            [
                events.issue_deleted(to_issue(row)),
                *(events.approval(to_approval(each), "approval.resolved") for each in dropped),
            ],
        )
        freed = {each["issue_id"] for each in relations} - {issue_id}
        await self._consequences.free(tx, freed, [issue_id])
