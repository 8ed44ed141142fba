"""CreateIssue: the issue and the wakeup of its assignment, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from reveille_heartbeat.crash_points import CREATE_ISSUE_AFTER_COMMIT, CREATE_ISSUE_BEFORE_COMMIT
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Carrier, Issue, Wish, Workspace
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_wakeup, to_workspace
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.agents.targets import read_squads
from reveille_heartbeat.usecases.issues.authors import (
    author_of,
    author_of_actor,
    issue_of_run,
    note_progress,
)
from reveille_heartbeat.usecases.issues.issue_graph import (
    check_agents,
    check_blockers,
    check_parent,
    check_project,
)
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_views import IssueView, view_of
from reveille_heartbeat.usecases.repeats import Repeatable, made_all, made_all_before
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import sending
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_heartbeat.usecases.wakeups.normalising import normalise
from reveille_runtime import feed
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import InvalidArgument, NotFound, PermissionDenied
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class NewIssue:
    """An issue to create. `wish` is the wake of its assignment, without the issue's id."""

    actor: Actor
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
    status: IssueState = IssueState.TODO
    # Stands for its leader; `wish` is for whoever that is.
    assignee_squad_id: UUID | None = None
    assignee_user_id: str = ""
    reviewer_agent_id: UUID | None = None
    reviewer_user_id: str = ""
    project_id: UUID | None = None
    parent: IssueRef | None = None
    blockers: tuple[IssueRef, ...] = ()
    subscribers: tuple[str, ...] = ()
    origin_kind: str = "manual"
    origin_id: str = ""


@dataclass(frozen=True, slots=True)
class Ties:
    """What an issue is a part of, and what blocks it, by id."""

    parent_id: UUID | None
    blocker_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Created:
    """What there is now; no issue when its occurrence was cancelled before."""

    issue: Issue | None
    wakeup: Enqueued | None
    view: IssueView | None = None


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
            if answer.issue is not None:
                answer = replace(answer, view=await view_of(tx, answer.issue))
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
        before = await made_all_before(tx, new.repeatable)
        if before is not None:
            return await self._made_by_request(tx, *before)
        workspace = await self._workspace(tx, new.workspace_id)
        new = await self._for_leader(tx, new)
        number: int = await tx.fetchval(Q["next_issue_number"], new.workspace_id)
        new, ties = await self._tie(tx, new)
        issue = await self._insert(tx, new, workspace, number, ties)
        wakeup = None
        if new.wish is not None:
            wish = replace(new.wish, issue_id=issue.issue_id)
            (wakeup,) = await self._enqueuing.locked(tx, [wish], {wish.wakeup_id: carrier})
        woken = [] if wakeup is None else [wakeup.wakeup_id]
        await made_all(tx, new.repeatable, [issue.issue_id, *woken])
        return Created(issue, wakeup)

    async def _workspace(self, tx: Tx, workspace_id: UUID) -> Workspace:
        rows = await tx.fetch(Q["find_workspaces"], [workspace_id])
        if not rows:
            raise NotFound("NOT_FOUND", f"workspace {workspace_id} is not known here")
        return to_workspace(rows[0])

    async def _for_leader(self, tx: Tx, new: NewIssue) -> NewIssue:
        """Put the leader of a squad in its place."""
        squad_id = new.assignee_squad_id
        if squad_id is None:
            return new
        squad = (await read_squads(tx, [squad_id])).get(squad_id)
        if squad is None or squad.workspace_id != new.workspace_id:
            raise InvalidArgument.of(
                "assignee_squad_id", f"{squad_id} is not a squad of this workspace"
            )
        return replace(new, assignee_agent_id=squad.leader_agent_id)

    async def _tie(self, tx: Tx, new: NewIssue) -> tuple[NewIssue, Ties]:
        """Find and lock what it is a part of and what blocks it; a run writes below its own issue.

        The counter's row, which is locked already, keeps others from tying issues meanwhile.
        """
        locks = LockOrder()
        locks.note(Level.WORKSPACE, [new.workspace_id])
        parent_id = None
        if new.parent is not None:
            parent_id = await id_of(tx, new.actor, new.parent, new.workspace_id, "parent_issue_id")
        elif new.actor.kind is CallerKind.RUN:
            parent_id = await issue_of_run(tx, new.actor)
        blockers = [
            await id_of(tx, new.actor, each, new.workspace_id, f"blocker_issue_ids[{at}]")
            for at, each in enumerate(new.blockers)
        ]
        above = [] if parent_id is None else [parent_id]
        await locks.take(tx, Level.ISSUE, Q["lock_issues"], [*above, *blockers])
        author = author_of_actor(new.actor)
        if parent_id is not None:
            parent = await check_parent(tx, new.workspace_id, None, parent_id)
            author = await author_of(tx, new.actor, parent)
            if author.run is not None and new.responsible_user_id:
                raise PermissionDenied(
                    "CALLER_NOT_ALLOWED",
                    "a run may not name responsible_user_id",
                    {"field": "responsible_user_id"},
                )
            responsible = new.responsible_user_id or parent.responsible_user_id
            new = replace(new, responsible_user_id=responsible)
        wanted = {
            "assignee_agent_id": new.assignee_agent_id,
            "reviewer_agent_id": new.reviewer_agent_id,
        }
        await check_agents(tx, author, new.workspace_id, wanted)
        await check_project(tx, new.workspace_id, new.project_id)
        await check_blockers(tx, new.workspace_id, new.issue_id, set(blockers), "blocker_issue_ids")
        await note_progress(tx, author)
        return new, Ties(parent_id, tuple(sorted(set(blockers))))

    async def _insert(
        self, tx: Tx, new: NewIssue, workspace: Workspace, number: int, ties: Ties
    ) -> Issue:
        row = await tx.fetchrow(
            Q["insert_issue"],
            new.issue_id,
            new.workspace_id,
            number,
            f"{workspace.issue_prefix}-{number}",
            new.title,
            new.description,
            new.status.value,
            new.priority,
            new.assignee_agent_id,
            new.responsible_user_id or workspace.default_responsible_user_id,
            new.occurrence_key,
            dict(new.trace_carrier),
            new.project_id,
            ties.parent_id,
            new.assignee_user_id,
            new.reviewer_agent_id,
            new.reviewer_user_id,
            new.origin_kind,
            new.origin_id,
        )
        if row is None:
            raise AssertionError("an INSERT without ON CONFLICT gives its row or fails")
        issue = to_issue(row)
        if ties.blocker_ids:
            await tx.fetch(Q["insert_relations"], issue.issue_id, list(ties.blocker_ids))
        if new.subscribers:
            await tx.execute(Q["subscribe"], issue.issue_id, list(new.subscribers))
        await feed.append(tx, [events.issue_created(issue)])
        return issue

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
                wishes = await normalise(tx, [new.wish])
                late = await self._enqueuing.unknown(tx, [], {new.wish.wakeup_id: carrier}, wishes)
                return Created(None, late[new.wish.wakeup_id])
            rows = await tx.fetch(Q["find_occurrences"], [new.workspace_id], [new.occurrence_key])
            found = rows[0]
        issue = await self._issue(tx, found["issue_id"]) if found["issue_id"] else None
        wakeups = await tx.fetch(Q["find_wakeups"], [found["wakeup_id"]])
        return Created(issue, Enqueued.of(to_wakeup(wakeups[0])) if wakeups else None)

    async def _made_by_request(self, tx: Tx, issue_id: UUID, *woken: UUID) -> Created:
        issue = await self._issue(tx, issue_id)
        rows = await tx.fetch(Q["find_wakeups"], list(woken)) if woken else []
        return Created(issue, Enqueued.of(to_wakeup(rows[0])) if rows else None)

    async def _issue(self, tx: Tx, issue_id: UUID) -> Issue:
        return to_issue((await tx.fetch(Q["find_issues"], [issue_id]))[0])
