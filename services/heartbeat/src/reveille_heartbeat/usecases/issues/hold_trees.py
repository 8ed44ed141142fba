"""HoldIssueTree and ReleaseIssueTree: an issue and all below it rest, and go on again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import asyncpg

from reveille_heartbeat.crash_points import ISSUE_STOPPED_AFTER_COMMIT
from reveille_heartbeat.domain.obstacles import MAX_DEPTH, HoldMode
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.tree import (
    MAX_TREE,
    Hold,
    Member,
    Placed,
    member_found,
    member_released,
    restores,
)
from reveille_heartbeat.domain.values import Issue
from reveille_heartbeat.domain.wakes import tells
from reveille_heartbeat.store.issue_rows import to_hold, to_member
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue
from reveille_heartbeat.usecases import channels, events
from reveille_heartbeat.usecases.issues.authors import author_of_actor, find_issue, require_issue
from reveille_heartbeat.usecases.issues.consequences import Consequences
from reveille_heartbeat.usecases.issues.issue_graph import lock_graph
from reveille_heartbeat.usecases.issues.issue_names import IssueRef, id_of
from reveille_heartbeat.usecases.issues.moving import lock_related, move_issue, set_status
from reveille_heartbeat.usecases.issues.obstacles import holds_over
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import Ended, cancel_wakeup
from reveille_runtime import feed
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.errors import FailedPrecondition
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import LockOrder


@dataclass(frozen=True, slots=True)
class NewHold:
    """A tree to hold."""

    hold_id: UUID
    ref: IssueRef
    mode: HoldMode
    reason: str
    let_runs_finish: bool


class HoldTrees:
    """Holds trees and lets them go, each in one transaction that has the whole tree locked."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, consequences: Consequences
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._consequences = consequences

    async def hold(self, actor: Actor, new: NewHold) -> tuple[Hold, int]:
        """Hold it; give the hold and how many wakeups were cancelled.

        Raises:
            NotFound: the caller cannot see the root. FailedPrecondition: it has a hold already.
        """
        ended = Ended()

        async def hold(tx: Tx) -> tuple[Hold, int]:
            ended.clear()
            return await self._hold(tx, actor, new, ended)

        answer = await retrying_transaction(self._db, hold)
        crash_point(ISSUE_STOPPED_AFTER_COMMIT)
        await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return answer

    async def release(self, actor: Actor, ref: IssueRef) -> Hold:
        """Let it go on.

        Raises:
            NotFound: the caller cannot see the root. FailedPrecondition: it has no hold.
        """

        async def release(tx: Tx) -> Hold:
            return await self._release(tx, actor, ref)

        released = await retrying_transaction(self._db, release)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return released

    async def _tree(
        self, tx: Tx, actor: Actor, ref: IssueRef, besides: Collection[UUID] = ()
    ) -> tuple[Issue, list[Placed]]:
        """Lock a tree with what moves in it concern; nobody ties or makes issues meanwhile."""
        root_id = await id_of(tx, actor, ref)
        known = require_issue(actor, await find_issue(tx, root_id), root_id)
        locks = LockOrder()
        await lock_graph(tx, locks, known.workspace_id)
        below = await tx.fetch(Q["issues_below"], root_id, MAX_DEPTH, MAX_TREE + 1)
        if len(below) > MAX_TREE:
            raise FailedPrecondition(
                "WRONG_STATE", f"issue {known.identifier} has more than {MAX_TREE} issues below it"
            )
        depths = {row["issue_id"]: row["depth"] for row in below}
        await lock_related(tx, locks, [*depths, *besides])
        rows = await tx.fetch(Q["find_issues"], list(depths))
        issues = {row["issue_id"]: to_issue(row) for row in rows}
        root = require_issue(actor, issues[root_id], root_id)
        placed = [
            Placed(issue, depths[issue.issue_id])
            for issue in issues.values()
            if issue.deleted_at is None
        ]
        return root, sorted(placed, key=lambda each: (each.depth, each.issue.issue_id))

    async def _hold(self, tx: Tx, actor: Actor, new: NewHold, ended: Ended) -> tuple[Hold, int]:
        root, tree = await self._tree(tx, actor, new.ref)
        if await tx.fetchrow(Q["active_hold"], root.issue_id) is not None:
            raise FailedPrecondition("WRONG_STATE", f"issue {root.identifier} has a hold already")
        over = await holds_over(tx, [each.issue.issue_id for each in tree])
        row = await _insert(tx, root, new, actor)
        members, changes = [], []
        for placed in tree:
            member = member_found(placed, new.mode, over.get(placed.issue.issue_id))
            if member.status_after is not member.status_before:
                moved = await move_issue(tx, placed.issue, member.status_after)
                if moved is None:
                    raise AssertionError("the lock is held and the move was judged")
                changes.append((placed.issue, moved))
                member = replace(member, ended_at=moved.ended_at)
            members.append(member)
        taken = [each.issue_id for each in members if not each.skip_reason]
        cancelled = await _stop(tx, taken, new, ended)
        await _insert_members(tx, new.hold_id, members)
        await self._consequences.follow(tx, changes, author_of_actor(actor), ended)
        await feed.append(tx, [events.tree_held(root, new.hold_id, new.mode.value)])
        return to_hold(row, members), cancelled

    async def _release(self, tx: Tx, actor: Actor, ref: IssueRef) -> Hold:
        root_id = await id_of(tx, actor, ref)
        seen = await tx.fetchrow(Q["active_hold"], root_id)
        snapshot = await _members(tx, seen["hold_id"]) if seen is not None else []
        besides = [each.issue_id for each in snapshot]
        root, tree = await self._tree(tx, actor, root_id, besides)
        row = await tx.fetchrow(Q["release_hold"], root.issue_id, actor.principal)
        if row is None:
            raise FailedPrecondition("WRONG_STATE", f"issue {root.identifier} has no hold")
        hold = to_hold(row, await _members(tx, row["hold_id"]))
        hold = await self._restore(tx, hold)
        ids = {each.issue.issue_id for each in tree} | {each.issue_id for each in hold.members}
        await self._wake(tx, actor, ids, hold)
        event = events.tree_held(root, hold.hold_id, hold.mode.value, "issue.released")
        await feed.append(tx, [event])
        return hold

    async def _restore(self, tx: Tx, hold: Hold) -> Hold:
        """Give back the statuses that nobody has changed since; say so of the others."""
        taken = [each for each in hold.members if each.status_after is not each.status_before]
        if not taken:
            return hold
        rows = await tx.fetch(Q["find_issues"], [each.issue_id for each in taken])
        now = {row["issue_id"]: to_issue(row) for row in rows}
        kept = []
        for member in taken:
            issue = now[member.issue_id]
            if restores(member, issue):
                await set_status(tx, issue, member.status_before)
            else:
                kept.append(member.issue_id)
        await tx.execute(Q["note_changed_members"], hold.hold_id, kept)
        return member_released(hold, kept)

    async def _wake(self, tx: Tx, actor: Actor, issue_ids: Collection[UUID], hold: Hold) -> None:
        """Wake the agents whose wakes the hold has kept from them."""
        rows = await tx.fetch(Q["wakes_swallowed"], sorted(issue_ids), hold.created_at)
        swallowed = [row["issue_id"] for row in rows]
        await self._consequences.restored(tx, swallowed, author_of_actor(actor))


async def _stop(tx: Tx, issue_ids: list[UUID], new: NewHold, ended: Ended) -> int:
    """Cancel what waits for issues and what works on them, as far as the hold says so.

    What tells an agent something waits on, whatever else it asks: it may pass a pause, and its
    claim decides that.
    """
    rows = await tx.fetch(Q["unsettled_with_work"], issue_ids)
    pause = new.mode is HoldMode.PAUSE
    reason = Reason.ISSUE_TREE_HELD if pause else Reason.ISSUE_CANCELLED
    message = f"its tree was held: {new.reason}" if new.reason else "its tree was held"
    cancelled = 0
    for row in rows:
        if row["at_work"] and new.let_runs_finish:
            continue
        if pause and not row["at_work"] and tells(row["context"]):
            continue
        await cancel_wakeup(tx, row["wakeup_id"], reason, message, ended)
        cancelled += 1
    return cancelled


async def _insert(tx: Tx, root: Issue, new: NewHold, actor: Actor) -> asyncpg.Record:
    row = await tx.fetchrow(
        Q["insert_hold"],
        new.hold_id,
        root.workspace_id,
        root.issue_id,
        new.mode.value,
        new.reason,
        new.let_runs_finish,
        actor.principal,
    )
    if row is None:
        raise AssertionError("an INSERT without ON CONFLICT gives its row or fails")
    return row


async def _insert_members(tx: Tx, hold_id: UUID, members: Sequence[Member]) -> None:
    await tx.execute(
        Q["insert_hold_members"],
        hold_id,
        [each.issue_id for each in members],
        [each.depth for each in members],
        [each.status_before.value for each in members],
        [each.status_after.value for each in members],
        [each.skip_reason for each in members],
        [each.ended_at for each in members],
    )


async def _members(tx: Tx, hold_id: UUID) -> list[Member]:
    return [to_member(row) for row in await tx.fetch(Q["hold_members"], hold_id)]
