"""What follows from changes of issues: whom they concern is woken, and void wakes end.

All of it happens in the transaction of the change, under the locks of `moving.lock_related`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

import asyncpg

from reveille_heartbeat.domain.issue_changes import (
    IssueWake,
    void_after,
    wakes_after,
    wakes_when_free,
    wakes_when_whole,
)
from reveille_heartbeat.domain.states import ISSUE_TERMINAL
from reveille_heartbeat.domain.values import Issue, Wish
from reveille_heartbeat.domain.wakes import WakeReason
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_issue, to_wakeup
from reveille_heartbeat.usecases.issues.authors import HEARTBEAT, Author
from reveille_heartbeat.usecases.issues.issue_wishes import NewId, wish_about
from reveille_heartbeat.usecases.issues.moving import dependents_of, place_runs
from reveille_heartbeat.usecases.issues.obstacles import open_blockers, pausing_holds
from reveille_heartbeat.usecases.wakeups.ending import Ended, end_waiting_wakeup
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.db import Tx


class Consequences:
    """What follows from moves and changes of issues, for every use case that makes them."""

    def __init__(self, enqueuing: Enqueuing, promotion: Promotion, new_id: NewId) -> None:
        self._enqueuing = enqueuing
        self._promotion = promotion
        self._new_id = new_id

    async def follow(
        self,
        tx: Tx,
        changes: Sequence[tuple[Issue, Issue]],
        author: Author,
        ended: Ended,
    ) -> list[Enqueued]:
        """End the wakes that have no object any more, and wake whom changes concern.

        `changes` are issues before and after; the locks of `lock_related` are held.
        """
        wishes: list[Wish] = []
        for before, after in changes:
            await self._end_void(tx, before, after, ended)
            wishes += [
                self._wish(after, each, by=author)
                for each in wakes_after(before, after, by_agent=author.agent_id)
            ]
        over = [
            after.issue_id
            for before, after in changes
            if after.status in ISSUE_TERMINAL and before.status not in ISSUE_TERMINAL
        ]
        if over:
            wishes += await self._unblocked(tx, await dependents_of(tx, over))
            wishes += await self._completed_parents(tx, over)
        return await self.wake(tx, wishes)

    async def free(
        self, tx: Tx, issue_ids: Collection[UUID], gone_ids: Collection[UUID] = ()
    ) -> list[Enqueued]:
        """Have issues go on that lost a blocker, and what the `gone_ids` were parts of.

        The locks of all of them are held.
        """
        await place_runs(tx, issue_ids)
        waiting = await open_blockers(tx, issue_ids)
        freed = [each for each in issue_ids if each not in waiting]
        reason = WakeReason.ISSUE_BLOCKERS_RESOLVED
        wishes = [
            self._wish(issue, wake)
            for issue in await self._issues(tx, freed)
            for wake in wakes_when_free(issue, reason)
        ]
        if gone_ids:
            wishes += await self._completed_parents(tx, gone_ids)
        return await self.wake(tx, wishes)

    async def restored(self, tx: Tx, issue_ids: Collection[UUID], author: Author) -> list[Enqueued]:
        """Have issues go on whose tree is held no more, where nothing else keeps them."""
        waiting = await open_blockers(tx, issue_ids)
        held = await pausing_holds(tx, issue_ids)
        free = [each for each in issue_ids if each not in waiting and each not in held]
        reason = WakeReason.ISSUE_TREE_RESTORED
        wishes = [
            self._wish(issue, wake, by=author)
            for issue in await self._issues(tx, free)
            for wake in wakes_when_free(issue, reason)
        ]
        return await self.wake(tx, wishes)

    async def wake(self, tx: Tx, wishes: Sequence[Wish]) -> list[Enqueued]:
        """Enqueue wishes about issues whose locks are held."""
        return await self._enqueuing.locked(tx, wishes) if wishes else []

    async def _end_void(self, tx: Tx, before: Issue, after: Issue, ended: Ended) -> None:
        if (before.assignee_agent_id, before.reviewer_agent_id) == (
            after.assignee_agent_id,
            after.reviewer_agent_id,
        ):
            return
        rows = await tx.fetch(Q["waiting_wakeups_of_issue"], after.issue_id)
        over = False
        for wakeup in sorted(map(to_wakeup, rows), key=lambda each: each.wakeup_id):
            reason = void_after(before, after, wakeup)
            if reason is not None:
                message = f"issue {after.identifier} is not its agent's any more"
                over |= await end_waiting_wakeup(tx, wakeup.wakeup_id, reason, message, ended)
        if over:
            # What waited behind it need not wait for the sweep.
            await self._promotion.promote(tx, {after.issue_id: None})

    async def _unblocked(self, tx: Tx, dependents: Collection[UUID]) -> list[Wish]:
        """One wake per issue all of whose blockers are done, however often that is found."""
        rows = await tx.fetch(Q["resolved_blockers"], sorted(dependents))
        reason = WakeReason.ISSUE_BLOCKERS_RESOLVED
        return await self._level(tx, rows, lambda issue: wakes_when_free(issue, reason))

    async def _completed_parents(self, tx: Tx, children: Collection[UUID]) -> list[Wish]:
        """One wake per parent all of whose parts have ended."""
        rows = await tx.fetch(Q["completed_parents"], sorted(children))
        return await self._level(tx, rows, wakes_when_whole)

    async def _level(
        self,
        tx: Tx,
        rows: Iterable[asyncpg.Record],
        wakes_of: Callable[[Issue], Iterable[IssueWake]],
    ) -> list[Wish]:
        facts = {row["issue_id"]: row["facts"] for row in rows}
        return [
            self._wish(issue, wake, _level_key(wake.reason, issue.issue_id, facts[issue.issue_id]))
            for issue in await self._issues(tx, facts)
            for wake in wakes_of(issue)
        ]

    async def _issues(self, tx: Tx, issue_ids: Collection[UUID]) -> list[Issue]:
        rows = await tx.fetch(Q["find_issues"], sorted(issue_ids)) if issue_ids else []
        return [to_issue(row) for row in rows]

    def _wish(
        self, issue: Issue, wake: IssueWake, key: str | None = None, by: Author = HEARTBEAT
    ) -> Wish:
        return wish_about(
            issue, wake.agent_id, wake.reason, by, self._new_id, source=wake.source, key=key
        )


def _level_key(reason: WakeReason, issue_id: UUID, facts: Sequence[str]) -> str:
    """The same state of the same issues gives the same key: it is told once."""
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
    return f"{reason.value}:{issue_id}:{digest}"
