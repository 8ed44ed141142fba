"""What a wish meets in the database: keys, locks, other wakes, and the limits that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.integration.heartbeat.desk import MAX, ROBOT, Desk

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import (
    NOBODY,
    Origin,
    Requester,
    RequesterKind,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.cancel_wakeups import Cancellation
from reveille_heartbeat.usecases.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.enqueuing import Enqueuing
from reveille_heartbeat.usecases.known_wishes import Answers
from reveille_runtime.db import Database, Tx
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

QUEUED, DEFERRED, COALESCED, SKIPPED = (
    WakeupState.QUEUED,
    WakeupState.DEFERRED,
    WakeupState.COALESCED,
    WakeupState.SKIPPED,
)
ANN = Requester(RequesterKind.AGENT, "ann")


@pytest.fixture
async def desk(database: TestDatabase) -> Desk:
    return await Desk.open(database, pool_max=12)


# What a wish is about, under whatever name.


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


# Keys: the same wish twice.


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


async def somebody_waits(desk: Desk) -> None:
    """Wait until a transaction waits for another one."""
    admin = await desk.database.admin()
    await eventually(
        lambda: admin.fetchval(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE NOT l.granted AND a.datname = current_database()"
        ),
        "a transaction waits",
        until=bool,
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


# Joining, deferral, queue.


async def test_what_joins_a_queued_wake_is_told_with_it(desk: Desk) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    one, two, three = [await desk.comment(issue) for _ in range(3)]
    foreign = await desk.comment(await desk.issue(agent))
    target = await desk.one(desk.wish(agent, issue))
    joined = await desk.wake(
        desk.commented(agent, issue, one, foreign),
        desk.commented(agent, issue, two, one),
        desk.wish(agent, issue, fresh_session=True),
        desk.wish(agent, issue),
    )
    joined += await desk.wake(desk.commented(agent, issue, three))

    assert {each.state for each in joined} == {COALESCED}
    merged = await desk.wakeup(target.wakeup_id)
    assert merged.comment_ids == (one, two, three)
    assert merged.fresh_session
    assert merged.coalesced_count == 5
    assert merged.context == {"comment_reason": "issue_commented"}
    assert await desk.runs() == 1


async def test_what_joins_in_the_same_batch_is_told_with_it(desk: Desk) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    comment = await desk.comment(issue)
    target, _, _ = await desk.wake(
        desk.wish(agent, issue),
        desk.commented(agent, issue, comment),
        desk.wish(agent, issue, fresh_session=True),
    )

    merged = await desk.wakeup(target.wakeup_id)
    assert (merged.comment_ids, merged.fresh_session) == ((comment,), True)
    assert merged.coalesced_count == 2


async def test_who_comes_while_the_agent_works_waits_and_those_after_join_that_one(
    desk: Desk,
) -> None:
    agent, other = await desk.agent(), await desk.agent("bob")
    issue = await desk.issue(agent)
    first = await desk.one(desk.wish(agent, issue))
    await desk.begin(first.wakeup_id)
    one, two = await desk.comment(issue), await desk.comment(issue)

    waits = await desk.one(desk.commented(agent, issue, one, idempotency_key="comment:1"))
    joins = await desk.one(desk.commented(agent, issue, two))
    elses = await desk.one(desk.wish(other, issue))
    assert [each.state for each in (waits, joins, elses)] == [DEFERRED, COALESCED, DEFERRED]
    assert waits.reason == Reason.ISSUE_BUSY
    stored = await desk.wakeup(waits.wakeup_id)
    assert (stored.comment_ids, stored.coalesced_count) == ((one, two), 1)
    again = await desk.one(desk.wish(agent, issue, idempotency_key="comment:1"))
    assert (again.wakeup_id, again.existed) == (waits.wakeup_id, True)


@pytest.mark.parametrize(
    "changes",
    [
        # Nothing that says nothing new is lost in a run that ends just now, either.
        {"prompt": ""},
        {"wake_reason": "approval_approved"},
        {"wake_reason": "issue_blockers_resolved", "idempotency_key": "level"},
        {"fresh_session": True},
    ],
)
async def test_no_wake_is_lost_in_a_run_whose_agent_is_at_work(
    desk: Desk, changes: dict[str, Any]
) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    first = await desk.one(desk.wish(agent, issue, **changes))
    await desk.begin(first.wakeup_id)
    key = {"idempotency_key": "next"} if "idempotency_key" in changes else {}
    waits = await desk.one(desk.wish(agent, issue, **(changes | key)))

    assert waits.state is DEFERRED
    if key:
        again = await desk.one(desk.wish(agent, issue, **(changes | key)))
        assert (again.wakeup_id, again.existed) == (waits.wakeup_id, True)
    free = await desk.one(desk.wish(agent, task_key="a"))
    await desk.begin(free.wakeup_id)
    assert (await desk.one(desk.wish(agent, task_key="a"))).state is QUEUED


async def test_a_persons_word_brings_a_retry_forward_and_nobody_elses_does(desk: Desk) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    first = await desk.one(desk.wish(agent, issue))
    run_id = await desk.begin(first.wakeup_id)
    later = "clock() + interval '1 hour'"
    await desk.set_run(
        run_id,
        {"state": "scheduled_retry", "occupied": False, "lease_token": None},
        lease_expires_at="NULL",
        scheduled_retry_at=later,
    )
    due = "SELECT scheduled_retry_at <= clock() FROM runs"

    robot = await desk.one(desk.wish(agent, issue))
    assert robot.state is COALESCED
    assert not await desk.rows.fetchval(due)
    comment = await desk.comment(issue)
    person = await desk.one(desk.commented(agent, issue, comment))
    assert person.state is COALESCED
    assert await desk.rows.fetchval(due)
    assert (await desk.wakeup(first.wakeup_id)).comment_ids == (comment,)


async def test_two_occurrences_on_one_issue_have_a_run_each(desk: Desk) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    answers = await desk.wake(
        desk.keyed("webhook:1", agent, issue), desk.keyed("webhook:2", agent, issue)
    )
    free = await desk.one(desk.wish(agent, issue))

    assert [each.state for each in answers] == [QUEUED, QUEUED]
    assert free.state is DEFERRED
    assert await desk.runs() == 2


async def test_parallel_wakes_of_one_task_make_one_run_and_of_another_their_own(
    desk: Desk,
) -> None:
    agent = await desk.agent()
    wishes = [desk.wish(agent, task_key=("a", "b", "")[at % 3]) for at in range(12)]
    answers = await asyncio.gather(*(desk.one(each) for each in wishes))

    assert sum(each.state is QUEUED for each in answers) == 3
    assert sum(each.state is COALESCED for each in answers) == 9
    assert await desk.runs() == 3


async def test_parallel_wakes_on_one_issue_make_one_run(desk: Desk) -> None:
    agents = [await desk.agent(name) for name in ("ann", "bob")]
    issue = await desk.issue()
    wishes = [desk.wish(agents[at % 2], issue) for at in range(10)]
    answers = await asyncio.gather(*(desk.one(each) for each in wishes))

    assert sum(each.state is QUEUED for each in answers) == 1
    assert sum(each.state is DEFERRED for each in answers) == 1
    assert await desk.runs() == 1


async def test_a_transaction_that_holds_the_issue_enqueues_with_its_own_writes(
    desk: Desk,
) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    wish = desk.wish(agent, issue, idempotency_key="moved")
    async with desk.db.transaction() as tx:
        await LockOrder().take(tx, Level.ISSUE, Q["lock_issues"], [issue])
        first, repeat = await desk.enqueuing.locked(tx, [wish, replace(wish, wakeup_id=uuid4())])
        (again,) = await desk.enqueuing.locked(tx, [replace(wish, wakeup_id=uuid4())])

    assert (first.state, first.existed) == (QUEUED, False)
    assert repeat == again == replace(first, existed=True)
    assert await desk.states([first]) == [QUEUED]


# What keeps an issue from being worked on.


async def test_a_hold_above_stops_what_is_no_verified_word_on_the_issue(desk: Desk) -> None:
    agent = await desk.agent()
    root = await desk.issue(agent)
    middle = await desk.issue(agent, parent_issue_id=root)
    issue = await desk.issue(agent, parent_issue_id=middle)
    await desk.hold(root)
    by_max, elsewhere = await desk.comment(issue), await desk.comment(root)
    answers = [
        await desk.one(each)
        for each in (
            desk.wish(agent, issue),
            desk.commented(agent, issue, elsewhere),
            desk.commented(agent, issue, by_max, requester=ROBOT),
            desk.commented(agent, issue, by_max, wake_reason="robot_wants"),
            desk.commented(agent, issue, by_max),
        )
    ]

    assert [each.reason for each in answers[:4]] == [Reason.ISSUE_TREE_HELD] * 4
    assert "ABC-1" in answers[0].message
    assert answers[4].state is QUEUED
    context = (await desk.wakeup(answers[4].wakeup_id)).context
    assert context["tree_hold_interaction"] is True
    assert context["tree_hold"]["root_issue_id"] == str(root)


async def test_an_issue_that_waits_for_others_takes_words_and_nothing_else(desk: Desk) -> None:
    agent = await desk.agent()
    issue, blocker = await desk.issue(agent), await desk.issue(status="cancelled")
    done = await desk.issue(status="done")
    await desk.block(issue, blocker)
    await desk.block(issue, done)
    blocked = await desk.one(desk.wish(agent, issue))
    keyed = await desk.one(desk.keyed("webhook:1", agent, issue))
    comment = await desk.comment(issue)
    word = await desk.one(desk.commented(agent, issue, comment))

    # A cancelled blocker resolves nothing.
    assert {blocked.reason, keyed.reason} == {Reason.ISSUE_DEPENDENCIES_BLOCKED}
    assert word.state is QUEUED
    context = (await desk.wakeup(word.wakeup_id)).context
    assert context["unresolved_blocker_count"] == 1
    assert context["unresolved_blockers"][0]["issue_id"] == str(blocker)
    assert await desk.rows.fetchval("SELECT ready_rank FROM runs") == 3
    # Somebody works: what comes now waits or joins, blocked or not.
    assert (await desk.one(desk.wish(agent, issue))).state is COALESCED


# Limits that are counted from rows.


async def finish(desk: Desk, wish: Wish, state: RunState = RunState.SUCCEEDED, **run: Any) -> None:
    answer = await desk.one(wish)
    assert answer.state is QUEUED, answer
    await desk.begin(answer.wakeup_id)
    await desk.end(answer.wakeup_id, state, **run)


async def test_an_assignment_that_led_to_nothing_twice_waits_until_something_is_new(
    desk: Desk,
) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)

    def assigned() -> Wish:
        return desk.wish(agent, issue, wake_reason="issue_assigned")

    await finish(desk, assigned())
    await finish(desk, assigned())
    held = await desk.one(assigned())
    assert held.reason == Reason.REWAKE_THROTTLED
    desk.database.move_clock(121)
    await finish(desk, assigned())
    desk.database.move_clock(121)
    assert (await desk.one(assigned())).reason == Reason.REWAKE_THROTTLED
    await desk.rows.execute(
        "UPDATE issues SET last_input_at = clock() + interval '300 s' WHERE issue_id = $1", issue
    )
    await finish(desk, assigned(), left_progress=True)
    desk.database.move_clock(301)
    assert (await desk.one(assigned())).state is QUEUED


async def test_an_agent_rests_from_what_it_has_just_done_and_from_nothing_else(
    desk: Desk,
) -> None:
    agent = await desk.agent(cooldown="10 minutes")
    issue = await desk.issue(agent)
    await finish(desk, desk.wish(agent, issue))

    assert (await desk.one(desk.wish(agent, issue))).reason == Reason.COOLDOWN
    await finish(desk, desk.wish(agent))
    assert (await desk.one(desk.wish(agent))).reason == Reason.COOLDOWN
    by_hand = desk.wish(agent, source=WakeupSource.ON_DEMAND, requester=MAX)
    assert (await desk.one(by_hand)).state is QUEUED
    desk.database.move_clock(601)
    assert (await desk.one(desk.wish(agent, issue))).state is QUEUED


async def test_a_days_cap_counts_what_was_started_and_lets_others_join(desk: Desk) -> None:
    agent = await desk.agent(max_daily_runs=2)
    await finish(desk, desk.wish(agent))
    never = await desk.one(desk.keyed("webhook:1", agent))
    await desk.cancel([Cancellation(desk.workspace_id, "webhook:1", "max")])
    assert await desk.states([never]) == [WakeupState.CANCELLED]
    queued = await desk.one(desk.wish(agent, task_key="a"))
    await finish(desk, desk.wish(agent, task_key="b"), RunState.CANCELLED)

    assert (await desk.one(desk.wish(agent, task_key="c"))).reason == Reason.DAILY_RUN_LIMIT
    joins = await desk.one(desk.wish(agent, task_key="a"))
    assert (queued.state, joins.state) == (QUEUED, COALESCED)
    desk.database.move_clock(86_400)
    assert (await desk.one(desk.wish(agent, task_key="c"))).state is QUEUED


async def test_a_days_cost_ends_the_day(desk: Desk) -> None:
    agent, free = await desk.agent(max_daily_cost_cents=100), await desk.agent("bob")
    for each in (agent, free):
        await finish(desk, desk.wish(each))
    await desk.rows.execute(
        "INSERT INTO cost_events (run_id, provider, model, day, workspace_id, agent_id, cost_cents)"
        " SELECT run_id, 'p', m, (clock() AT TIME ZONE 'UTC')::date, workspace_id, agent_id, 50"
        " FROM runs, unnest(ARRAY['m', 'n']) AS m"
    )

    refused, other = await desk.wake(desk.wish(agent), desk.wish(free))
    assert refused.reason == Reason.DAILY_COST_LIMIT
    assert other.state is QUEUED


async def test_a_timer_that_finds_no_work_has_looked_all_the_same(desk: Desk) -> None:
    agent = await desk.agent(timer_enabled=True, skip_timer_without_work=True)
    await desk.issue(agent, status="backlog")
    timer = desk.wish(agent, source=WakeupSource.TIMER, wake_reason="heartbeat_timer")
    looked = "SELECT last_timer_fired_at FROM agents"

    assert (await desk.one(timer)).reason == Reason.NO_ACTIONABLE_WORK
    assert await desk.rows.fetchval(looked) is not None
    await desk.issue(agent, status="todo")
    answer = await desk.one(replace(timer, wakeup_id=uuid4()))
    assert answer.state is QUEUED
    assert (await desk.wakeup(answer.wakeup_id)).task_key == "__heartbeat__"


async def test_what_an_operator_holds_back_leaves_its_rows(desk: Desk) -> None:
    agent = await desk.agent()
    enqueuing = Enqueuing(desk.enqueuing._decider, suppressed=True)
    enqueue = EnqueueWakeups(desk.db, Telemetry.off(), Notifier(desk.db, enabled=False), enqueuing)
    (answer,) = await enqueue([desk.wish(agent)])

    assert (answer.state, answer.reason) == (SKIPPED, Reason.SCHEDULING_SUPPRESSED)
    stored = await desk.wakeup(answer.wakeup_id)
    assert stored.finished_at is not None
    assert await desk.runs() == 0


async def test_who_answers_is_read_from_the_issue_above(desk: Desk) -> None:
    agent = await desk.agent()
    parent = await desk.issue(agent, responsible_user_id="petra")
    issue = await desk.issue(agent, parent_issue_id=parent)
    answer = await desk.one(desk.wish(agent, issue, origin=Origin(originator_user_id="max")))

    assert (await desk.wakeup(answer.wakeup_id)).responsible_user_id == "petra"
    assert await desk.rows.fetchval("SELECT responsible_user_id FROM runs") == "petra"
