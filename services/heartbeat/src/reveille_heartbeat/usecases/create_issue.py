"""CreateIssue: the issue and the wakeup of its assignment, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from reveille_heartbeat.crash_points import CREATE_ISSUE_AFTER_COMMIT, CREATE_ISSUE_BEFORE_COMMIT
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Carrier, Issue, Wish, Workspace
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_wakeup, to_workspace
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.enqueue_wakeups import sending
from reveille_heartbeat.usecases.enqueuing import Enqueuing
from reveille_heartbeat.usecases.known_wishes import Enqueued
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import NotFound
from reveille_runtime.hints import Notifier
from reveille_runtime.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class NewIssue:
    """An issue to create. `wish` is the wake of its assignment, without the issue's id."""

    issue_id: UUID
    workspace_id: UUID
    title: str
    description: str
    priority: int
    assignee_agent_id: UUID | None
    responsible_user_id: str
    occurrence_key: str | None
    trace_carrier: Carrier
    wish: Wish | None
    repeatable: Repeatable | None


@dataclass(frozen=True, slots=True)
class Created:
    """What there is now; no issue when its occurrence was cancelled before."""

    issue: Issue | None
    wakeup: Enqueued | None


class CreateIssue:
    """Makes an issue once per occurrence key or request id."""

    def __init__(
        self, db: Database, telemetry: Telemetry, notifier: Notifier, enqueuing: Enqueuing
    ) -> None:
        self._db = db
        self._telemetry = telemetry
        self._notifier = notifier
        self._enqueuing = enqueuing

    async def __call__(self, new: NewIssue) -> Created:
        """Create it, or answer with what the same request made before.

        Raises:
            NotFound: the workspace or the agent is not known here.
            InvalidArgument: the request id was used for another request.
        """
        if new.wish is None:
            return await self._create(new, {})
        with sending(self._telemetry, new.wish) as carrier:
            return await self._create(new, carrier)

    async def _create(self, new: NewIssue, carrier: Carrier) -> Created:
        async def create(tx: Tx) -> Created:
            answer = await self._in(tx, new, carrier)
            crash_point(CREATE_ISSUE_BEFORE_COMMIT)
            return answer

        # Repeating is harmless only where a key tells what the lost COMMIT has made.
        keyed = new.occurrence_key is not None or new.repeatable is not None
        answer = await retrying_transaction(self._db, create, repeatable=keyed)
        crash_point(CREATE_ISSUE_AFTER_COMMIT)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return answer

    async def _in(self, tx: Tx, new: NewIssue, carrier: Carrier) -> Created:
        if new.occurrence_key is not None:
            taken = await tx.fetch(
                Q["take_occurrences"],
                [new.workspace_id],
                [new.occurrence_key],
                [None if new.wish is None else new.wish.wakeup_id],
                [new.issue_id],
            )
            if not taken:
                return await self._made_by_key(tx, new, carrier)
        before = await made_before(tx, new.repeatable)
        if before is not None:
            return await self._made_by_request(tx, before)
        workspace = await self._workspace(tx, new.workspace_id)
        issue = await self._insert(tx, new, workspace)
        wakeup = None
        if new.wish is not None:
            wish = replace(new.wish, issue_id=issue.issue_id)
            (wakeup,) = await self._enqueuing.locked(tx, [wish], {wish.wakeup_id: carrier})
        await made(tx, new.repeatable, issue.issue_id)
        return Created(issue, wakeup)

    async def _workspace(self, tx: Tx, workspace_id: UUID) -> Workspace:
        rows = await tx.fetch(Q["find_workspaces"], [workspace_id])
        if not rows:
            raise NotFound("NOT_FOUND", f"workspace {workspace_id} is not known here")
        return to_workspace(rows[0])

    async def _insert(self, tx: Tx, new: NewIssue, workspace: Workspace) -> Issue:
        number: int = await tx.fetchval(Q["next_issue_number"], new.workspace_id)
        if new.assignee_agent_id is not None:
            rows = await tx.fetch(Q["find_agents"], [new.assignee_agent_id])
            if not rows or rows[0]["workspace_id"] != new.workspace_id:
                raise NotFound("NOT_FOUND", f"agent {new.assignee_agent_id} is not known here")
        row = await tx.fetchrow(
            Q["insert_issue"],
            new.issue_id,
            new.workspace_id,
            number,
            f"{workspace.issue_prefix}-{number}",
            new.title,
            new.description,
            IssueState.TODO.value,
            new.priority,
            new.assignee_agent_id,
            new.responsible_user_id or workspace.default_responsible_user_id,
            new.occurrence_key,
            dict(new.trace_carrier),
        )
        if row is None:
            raise AssertionError("an INSERT without ON CONFLICT gives its row or fails")
        return to_issue(row)

    async def _made_by_key(self, tx: Tx, new: NewIssue, carrier: Carrier) -> Created:
        rows = await tx.fetch(Q["find_occurrences"], [new.workspace_id], [new.occurrence_key])
        found = rows[0]
        if found["wakeup_id"] is None and new.wish is not None:
            linked = await tx.fetch(
                Q["link_cancelled_occurrences"],
                [new.workspace_id],
                [new.occurrence_key],
                [new.wish.wakeup_id],
            )
            if linked:
                late = await self._enqueuing.unknown(
                    tx, [], {new.wish.wakeup_id: carrier}, [new.wish]
                )
                return Created(None, late[new.wish.wakeup_id])
            rows = await tx.fetch(Q["find_occurrences"], [new.workspace_id], [new.occurrence_key])
            found = rows[0]
        issue = await self._issue(tx, found["issue_id"]) if found["issue_id"] else None
        wakeups = await tx.fetch(Q["find_wakeups"], [found["wakeup_id"]])
        return Created(issue, Enqueued.of(to_wakeup(wakeups[0])) if wakeups else None)

    async def _made_by_request(self, tx: Tx, issue_id: UUID) -> Created:
        issue = await self._issue(tx, issue_id)
        rows = await tx.fetch(Q["wakeups_of_issue"], issue_id, 200)
        return Created(issue, Enqueued.of(to_wakeup(rows[-1])) if rows else None)

    async def _issue(self, tx: Tx, issue_id: UUID) -> Issue:
        return to_issue((await tx.fetch(Q["find_issues"], [issue_id]))[0])
