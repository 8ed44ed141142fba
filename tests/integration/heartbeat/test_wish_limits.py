"""What a wish may pass, as far as rows tell: holds, blockers, pauses and the caps of a day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from tests.integration.heartbeat.desk import MAX, ROBOT, Desk

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import (
    Origin,
    WakeupSource,
    Wish,
)
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import Cancellation
from reveille_heartbeat.usecases.wakeups.enqueue_wakeups import EnqueueWakeups
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_runtime.hints import Notifier
from reveille_runtime.telemetry import Telemetry

QUEUED, COALESCED, SKIPPED = WakeupState.QUEUED, WakeupState.COALESCED, WakeupState.SKIPPED


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
