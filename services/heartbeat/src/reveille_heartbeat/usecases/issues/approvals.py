"""RequestApproval and ResolveApproval: a decision is asked for, and one decision wins."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.discussion import DECISION_WAKES, Approval
from reveille_heartbeat.domain.states import APPROVAL_TRANSITIONS, ApprovalStatus
from reveille_heartbeat.domain.values import Issue, Origin, Payload, WakeupSource, Wish
from reveille_heartbeat.domain.wakes import APPROVAL, WakeReason
from reveille_heartbeat.store.issue_rows import to_approval
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.etags import require_etag
from reveille_heartbeat.usecases.issues.authors import (
    Author,
    author_of,
    author_of_actor,
    by_run,
    find_issue,
    live_run,
    note_progress,
    require_issue,
)
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.issue_wishes import NewId
from reveille_heartbeat.usecases.listing import require_known
from reveille_heartbeat.usecases.repeats import Repeatable, made, made_before
from reveille_heartbeat.usecases.visible import require_visible
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_runtime import feed
from reveille_runtime.access import Actor, CallerKind
from reveille_runtime.carrier import inject
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A decision to ask for."""

    approval_id: UUID
    workspace_id: UUID
    ref: IssueRef | None
    title: str
    description: str
    repeatable: Repeatable | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decides."""

    approval_id: UUID
    status: ApprovalStatus
    note: str
    etag: str


@dataclass(frozen=True, slots=True)
class Decided:
    """The approval, and the wakeup of the agent that asked."""

    approval: Approval
    wakeup: Enqueued | None


class Approvals:
    """Asks people, and tells the asker what they said."""

    def __init__(
        self, db: Database, notifier: Notifier, consequences: Consequences, new_id: NewId
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._consequences = consequences
        self._new_id = new_id

    async def request(self, actor: Actor, new: NewApproval) -> Approval:
        """Ask, or answer with what the same request asked before.

        Raises:
            NotFound: the caller cannot see workspace or issue. FailedPrecondition: the run ended.
            InvalidArgument: the request id was used for another request.
        """

        async def ask(tx: Tx) -> Approval:
            known = await made_before(tx, new.repeatable)
            if known is not None:
                return await find_approval(tx, actor, known)
            approval = await self._ask(tx, actor, new)
            await made(tx, new.repeatable, approval.approval_id)
            return approval

        approval = await retrying_transaction(self._db, ask, repeatable=new.repeatable is not None)
        self._notifier.notify(channels.FEED)
        return approval

    async def resolve(self, actor: Actor, decision: Decision) -> Decided:
        """Decide; the same decision again changes nothing.

        Raises:
            NotFound: the caller cannot see it. Aborted: it changed since the caller read it.
            FailedPrecondition: it was decided otherwise before.
        """

        async def decide(tx: Tx) -> Decided:
            return await self._decide(tx, actor, decision)

        answer = await retrying_transaction(self._db, decide)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return answer

    async def _ask(self, tx: Tx, actor: Actor, new: NewApproval) -> Approval:
        author, issue = await self._asker(tx, actor, new)
        row = await tx.fetchrow(
            Q["insert_approval"],
            new.approval_id,
            new.workspace_id,
            None if issue is None else issue.issue_id,
            new.title,
            new.description,
            author.user_id,
            author.agent_id,
            None if author.run is None else author.run.run_id,
        )
        if row is None:
            raise AssertionError("an INSERT without ON CONFLICT gives its row or fails")
        await note_progress(tx, author)
        approval = to_approval(row)
        await feed.append(tx, [events.approval(approval, "approval.requested")])
        return approval

    async def _asker(self, tx: Tx, actor: Actor, new: NewApproval) -> tuple[Author, Issue | None]:
        """Say who asks, and about what: of a run, its own issue where none is named."""
        await require_known(tx, new.workspace_id, [])
        ref = new.ref
        if ref is None and actor.kind is CallerKind.RUN:
            runs = await tx.fetch(Q["find_runs"], [actor.run_id])
            ref = runs[0]["issue_id"] if runs else None
            if ref is None:
                return by_run(await live_run(tx, actor)), None
        if ref is None:
            return author_of_actor(actor), None
        issue_id = await id_of(tx, actor, ref, new.workspace_id)
        await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue_id])
        issue = require_issue(actor, await find_issue(tx, issue_id), issue_id)
        if issue.workspace_id != new.workspace_id:
            issue = require_issue(actor, None, issue_id)
        return await author_of(tx, actor, issue), issue

    async def _decide(self, tx: Tx, actor: Actor, decision: Decision) -> Decided:
        asked = await find_approval(tx, actor, decision.approval_id)
        locks = LockOrder()
        issue = None
        if asked.issue_id is not None:
            await locks.take(tx, Level.ISSUE, Q["lock_issues"], [asked.issue_id])
            issue = require_issue(actor, await find_issue(tx, asked.issue_id), asked.issue_id)
        elif asked.requested_by_agent_id is not None:
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [asked.requested_by_agent_id])
        require_etag(decision.etag, asked, "the approval")
        if asked.status is decision.status:
            return Decided(asked, None)
        if decision.status not in APPROVAL_TRANSITIONS[asked.status]:
            raise _decided_otherwise(asked)
        row = await tx.fetchrow(
            Q["decide_approval"],
            asked.approval_id,
            asked.revision,
            decision.status.value,
            actor.subject,
            decision.note,
        )
        if row is None:
            # Somebody decided since we read it.
            return await self._beaten(tx, actor, decision)
        approval = to_approval(row)
        await feed.append(tx, [events.approval(approval, "approval.resolved")])
        task_key = await _task_of(tx, approval) if issue is None else ""
        wish = self._wish(approval, issue, author_of_actor(actor), task_key)
        wakeups = await self._consequences.wake(tx, [] if wish is None else [wish])
        return Decided(approval, wakeups[0] if wakeups else None)

    async def _beaten(self, tx: Tx, actor: Actor, decision: Decision) -> Decided:
        now = await find_approval(tx, actor, decision.approval_id)
        if now.status is decision.status:
            return Decided(now, None)
        raise _decided_otherwise(now)

    def _wish(
        self, approval: Approval, issue: Issue | None, author: Author, task_key: str
    ) -> Wish | None:
        reason: WakeReason | None = DECISION_WAKES.get(approval.status)
        if reason is None or approval.requested_by_agent_id is None:
            return None
        return Wish(
            wakeup_id=self._new_id(),
            workspace_id=approval.workspace_id,
            agent_id=approval.requested_by_agent_id,
            source=WakeupSource.AUTOMATION,
            wake_reason=reason.value,
            title=approval.title,
            prompt=approval.note or approval.description,
            issue_id=None if issue is None else issue.issue_id,
            caller=author.caller,
            idempotency_key=None,
            origin=Origin(originator_user_id=author.user_id, trace_carrier=inject()),
            payload=Payload(),
            requester=author.requester,
            task_key=task_key,
            context={
                APPROVAL: {
                    "approval_id": str(approval.approval_id),
                    "title": approval.title,
                    "status": approval.status.value,
                    "note": approval.note,
                }
            },
        )


async def find_approval(tx: Tx, actor: Actor, approval_id: UUID) -> Approval:
    """Give an approval that the caller may see. Raises NotFound."""
    rows = await tx.fetch(Q["find_approvals"], [approval_id])
    found = to_approval(rows[0]) if rows else None
    return require_visible(actor, found, "approval", approval_id)


async def _task_of(tx: Tx, approval: Approval) -> str:
    """Name the conversation in which an agent asked, so that it goes on there."""
    if approval.requested_by_run_id is None:
        return ""
    task_key: str | None = await tx.fetchval(Q["task_of_run"], approval.requested_by_run_id)
    return task_key or ""


def _decided_otherwise(approval: Approval) -> FailedPrecondition:
    return FailedPrecondition(
        "WRONG_STATE",
        f"the approval is {approval.status.value} already",
        {"status": approval.status.value, "decided_by": approval.decided_by},
    )
