"""Who writes about issues: people, services, and runs that may write only while they live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never
from uuid import UUID

from reveille_heartbeat.domain.obstacles import MAX_DEPTH
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import Issue, Requester, RequesterKind, Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_run
from reveille_heartbeat.usecases.visible import require_visible
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.db import Tx
from reveille_runtime.errors import FailedPrecondition, NotFound


@dataclass(frozen=True, slots=True)
class Author:
    """Who does something to an issue, as its wakes and comments name them."""

    requester: Requester
    # By what the idempotency keys of their wakes are scoped.
    caller: str
    run: Run | None = None

    @property
    def agent_id(self) -> UUID | None:
        """The agent, when one writes."""
        return None if self.run is None else self.run.agent_id

    @property
    def user_id(self) -> str:
        """The person, when one writes."""
        return self.requester.id if self.requester.kind is RequesterKind.USER else ""

    @property
    def is_person(self) -> bool:
        """Tell people from everybody else."""
        return self.requester.kind is RequesterKind.USER


# What follows from rows by itself.
HEARTBEAT = Author(Requester(RequesterKind.SYSTEM, "heartbeat"), "system:heartbeat")


def by_run(run: Run) -> Author:
    """The agent at work in an attempt, whose right to write its caller has judged."""
    return Author(Requester(RequesterKind.AGENT, str(run.agent_id)), f"run:{run.run_id}", run)


async def author_of(tx: Tx, actor: Actor, issue: Issue) -> Author:
    """Say who writes about an issue whose lock is held, and whether they may.

    A run is locked until the end of the transaction: what it writes, it writes while it lives.

    Raises:
        NotFound: the caller cannot see the issue, or it lies outside of what the run works on.
        FailedPrecondition: the run has ended.
    """
    require_issue(actor, issue, issue.issue_id)
    if actor.kind is not CallerKind.RUN:
        return author_of_actor(actor)
    run = await live_run(tx, actor)
    if run.issue_id is None or not await is_below(tx, issue.issue_id, run.issue_id):
        raise _not_its_issue(issue.issue_id)
    return by_run(run)


def author_of_actor(actor: Actor) -> Author:
    """Name who calls; of a run, its right to write is asked by `author_of`."""
    return Author(requester_of(actor), actor.principal)


def requester_of(actor: Actor) -> Requester:
    """Say who asks, by the token the call came with."""
    match actor.kind:
        case CallerKind.SERVICE:
            return Requester(RequesterKind.SERVICE, actor.subject)
        case CallerKind.RUN:
            return Requester(RequesterKind.AGENT, actor.subject)
        case CallerKind.USER | CallerKind.RUNTIME:
            return Requester(RequesterKind.USER, actor.subject)
        case _:
            assert_never(actor.kind)


async def issue_of_run(tx: Tx, actor: Actor) -> UUID:
    """Name the issue that the calling run works on.

    Raises:
        FailedPrecondition: it works on none.
    """
    rows = await tx.fetch(Q["find_runs"], [actor.run_id])
    issue_id: UUID | None = rows[0]["issue_id"] if rows else None
    if issue_id is None:
        raise FailedPrecondition("WRONG_STATE", f"run {actor.run_id} works on no issue")
    return issue_id


async def live_run(tx: Tx, actor: Actor) -> Run:
    """Lock the run that calls.

    Raises:
        NotFound: it is gone. FailedPrecondition: it has ended.
    """
    if actor.run_id is None:
        raise AssertionError("a run's token names its run")
    await tx.fetch(Q["lock_runs"], [actor.run_id])
    rows = await tx.fetch(Q["find_runs"], [actor.run_id])
    if not rows:
        raise NotFound("NOT_FOUND", f"run {actor.run_id} does not exist")
    run = to_run(rows[0])
    if run.state is not RunState.RUNNING:
        raise FailedPrecondition("WRONG_STATE", f"run {run.run_id} has ended")
    return run


async def note_progress(tx: Tx, author: Author) -> None:
    """Remember that a run left something that others can see."""
    if author.run is not None:
        await tx.execute(Q["note_progress"], author.run.run_id)


async def is_below(tx: Tx, issue_id: UUID, root_issue_id: UUID) -> bool:
    """Tell whether an issue is a root or lies below it."""
    if issue_id == root_issue_id:
        return True
    rows = await tx.fetch(Q["issues_above"], issue_id, MAX_DEPTH)
    return any(row["issue_id"] == root_issue_id for row in rows)


async def find_issue(tx: Tx, issue_id: UUID) -> Issue | None:
    """Read an issue, whoever asks."""
    rows = await tx.fetch(Q["find_issues"], [issue_id])
    return to_issue(rows[0]) if rows else None


def require_issue(actor: Actor, issue: Issue | None, issue_id: UUID) -> Issue:
    """Give an issue that is there for this caller; a deleted one is there for nobody.

    Raises:
        NotFound: there is none.
    """
    kept = None if issue is None or issue.deleted_at is not None else issue
    return require_visible(actor, kept, "issue", issue_id)


def _not_its_issue(issue_id: UUID) -> NotFound:
    return NotFound(
        "NOT_FOUND",
        f"issue {issue_id} does not exist, or is not yours",
        {"id": str(issue_id)},
    )
