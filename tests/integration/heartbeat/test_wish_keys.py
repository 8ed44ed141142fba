"""What a wish is about under whatever name, and the same wish twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from tests.integration.heartbeat.desk import Desk

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import (
    NOBODY,
    Wish,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import Cancellation
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import Answers
from reveille_runtime.db import Database, Tx
from reveille_runtime.hints import Notifier
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

QUEUED, COALESCED, SKIPPED = WakeupState.QUEUED, WakeupState.COALESCED, WakeupState.SKIPPED


async def test_an_issue_is_one_whether_called_by_its_id_or_its_identifier(desk: Desk) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    by_id = desk.wish(agent, issue)
    by_name = desk.wish(agent, issue_identifier="ABC-1", task_key="abc-1")

    first, second, third = await desk.wake(by_id, by_name, replace(by_name, wakeup_id=uuid4()))
    fourth = await desk.one(replace(by_name, wakeup_id=uuid4()))
    assert [each.state for each in (first, second, third, fourth)] == [QUEUED] + [COALESCED] * 3
    assert await desk.runs() == 1
    stored = await desk.wakeup(second.wakeup_id)
    assert (stored.issue_id, stored.task_key) == (issue, str(issue))
    assert stored.joined_wakeup_id == first.wakeup_id
    assert (await desk.wakeup(first.wakeup_id)).coalesced_count == 3


async def test_a_squad_is_woken_through_its_leader_and_an_unknown_one_leaves_a_row(
    desk: Desk,
) -> None:
    leader = await desk.agent()
    squad = uuid4()
    await desk.rows.execute(
        "INSERT INTO squads (squad_id, workspace_id, name, leader_agent_id)"
        " VALUES ($1, $2, 'night shift', $3)",
        squad,
        desk.workspace_id,
        leader,
    )
    known, unknown, nowhere = await desk.wake(
        desk.wish(NOBODY, squad_id=squad),
        desk.wish(NOBODY, squad_id=uuid4()),
        desk.wish(leader, issue_identifier="ABC-404"),
    )

    stored = await desk.wakeup(known.wakeup_id)
    assert (stored.state, stored.agent_id, stored.squad_id) == (QUEUED, leader, squad)
    assert (unknown.state, unknown.reason) == (SKIPPED, Reason.AGENT_NOT_FOUND)
    assert (nowhere.state, nowhere.reason) == (SKIPPED, Reason.ISSUE_NOT_FOUND)
    assert "ABC-404" in nowhere.message


async def test_one_idempotency_key_makes_one_wakeup_whatever_else_comes_under_it(
    desk: Desk,
) -> None:
    agent, other = await desk.agent(), await desk.agent("bob")
    issue = await desk.issue(agent)
    bodies = [
        desk.wish(agent, issue),
        desk.wish(other),
        desk.wish(agent, task_key="nightly"),
        desk.wish(other, issue, title="Something else"),
    ]
    wishes = [
        [replace(body, wakeup_id=uuid4(), idempotency_key="once"), desk.wish(body.agent_id)]
        for body in bodies * 3
    ]
    answers = await asyncio.gather(*(desk.enqueue(batch) for batch in wishes))

    made = [keyed for keyed, _ in answers]
    assert len({each.wakeup_id for each in made}) == 1
    assert sum(not each.existed for each in made) == 1
    stranger = replace(wishes[0][0], wakeup_id=uuid4(), caller="service:another")
    assert (await desk.one(stranger)).wakeup_id != made[0].wakeup_id


async def test_a_repeat_within_a_batch_gets_the_answer_of_the_first(desk: Desk) -> None:
    agent = await desk.agent()
    first, again, skipped, skipped_again = await desk.wake(
        desk.wish(agent, idempotency_key="a"),
        desk.wish(agent, idempotency_key="a", title="Another body"),
        desk.keyed("webhook:1", uuid4()),
        desk.keyed("webhook:1", agent),
    )

    assert again == replace(first, existed=True)
    assert skipped_again == replace(skipped, existed=True)
    assert skipped.reason == Reason.AGENT_NOT_FOUND


class LostAnswer(Database):
    """A database whose first COMMIT arrives although its answer does not."""

    lost = False

    @asynccontextmanager
    async def transaction(self, **more: Any) -> AsyncIterator[Tx]:
        async with super().transaction(**more) as tx:
            yield tx
        if not self.lost:
            self.lost = True
            raise asyncpg.ConnectionDoesNotExistError("the connection was closed")


async def test_a_commit_whose_answer_was_lost_is_not_done_twice(
    desk: Desk, database: TestDatabase
) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    db = LostAnswer(database.settings("heartbeat"))
    async with db:
        enqueue = EnqueueWakeups(db, Telemetry.off(), Notifier(db, enabled=False), desk.enqueuing)
        wishes = [
            desk.wish(agent, issue),
            desk.wish(agent, issue),
            desk.wish(agent, idempotency_key="a"),
            desk.keyed("webhook:1", agent),
        ]
        answers = await enqueue(wishes)
        assert db.lost

    assert [each.wakeup_id for each in answers] == [each.wakeup_id for each in wishes]
    assert [each.state for each in answers] == [QUEUED, COALESCED, QUEUED, QUEUED]
    assert not any(each.existed for each in answers)
    assert await desk.runs() == 3
    assert (await desk.wakeup(answers[0].wakeup_id)).coalesced_count == 1


class Gated(Enqueuing):
    """Enqueueing that stops where it has taken keys and locks."""

    def __init__(self, like: Enqueuing) -> None:
        super().__init__(like._decider)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def unknown(
        self,
        tx: Tx,
        wishes: Sequence[Wish],
        carriers: Mapping[UUID, Any],
        late: Sequence[Wish] = (),
    ) -> Answers:
        self.reached.set()
        await self.go.wait()
        return await super().unknown(tx, wishes, carriers, late)


async def somebody_waits(desk: Desk, count: int = 1) -> None:
    """Wait until a transaction, or so many, waits for another one."""
    admin = await desk.database.admin()
    await eventually(
        lambda: admin.fetchval(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE NOT l.granted AND a.datname = current_database()"
        ),
        "a transaction waits",
        until=lambda waiting: waiting >= count,
    )


async def test_a_cancellation_that_meets_an_enqueue_under_way_cancels_what_it_makes(
    desk: Desk,
) -> None:
    agent = await desk.agent()
    gated = Gated(desk.enqueuing)
    enqueue = EnqueueWakeups(desk.db, Telemetry.off(), Notifier(desk.db, enabled=False), gated)
    enqueued = asyncio.create_task(enqueue([desk.keyed("webhook:1", agent)]))
    await gated.reached.wait()
    cancelled = asyncio.create_task(
        desk.cancel([Cancellation(desk.workspace_id, "webhook:1", "max")])
    )
    await somebody_waits(desk)
    gated.go.set()

    (made,), (answer,) = await enqueued, await cancelled
    assert made.state is QUEUED
    assert (answer.state, answer.recorded) == (WakeupState.CANCELLED, False)
    assert answer.wakeup_id == made.wakeup_id
    assert await desk.states([made]) == [WakeupState.CANCELLED]


async def test_an_enqueue_that_meets_a_cancellation_under_way_leaves_its_row(desk: Desk) -> None:
    agent = await desk.agent()
    async with desk.db.transaction() as tx:
        await tx.fetch(Q["record_cancelled_occurrence"], desk.workspace_id, "webhook:1")
        late = asyncio.create_task(desk.wake(desk.keyed("webhook:1", agent), desk.wish(agent)))
        await somebody_waits(desk)

    keyed, other = await late
    assert (keyed.state, keyed.reason) == (WakeupState.CANCELLED, Reason.CANCELLED)
    assert other.state is QUEUED
    assert await desk.runs() == 1
    again = await desk.one(desk.keyed("webhook:1", agent))
    assert (again.wakeup_id, again.existed) == (keyed.wakeup_id, True)


async def test_of_two_late_wishes_at_once_the_cancelled_key_names_one(desk: Desk) -> None:
    agent = await desk.agent()
    await desk.cancel([Cancellation(desk.workspace_id, "webhook:1", "max")])
    async with desk.db.transaction() as tx:
        await tx.fetch(Q["lock_occurrence"], desk.workspace_id, "webhook:1")
        late = [asyncio.create_task(desk.one(desk.keyed("webhook:1", agent))) for _ in range(2)]
        await somebody_waits(desk, 2)

    first, second = await asyncio.gather(*late)
    assert first.wakeup_id == second.wakeup_id
    assert {first.existed, second.existed} == {True, False}
