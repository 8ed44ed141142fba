"""When an issue is free, who waited longest gets the turn, and who cannot use it says why."""

from __future__ import annotations

from itertools import chain
from uuid import UUID

import pytest
from tests.integration.heartbeat.desk import MAX, Desk

from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Requester, RequesterKind
from reveille_heartbeat.usecases.runs.loaded import read_words
from reveille_heartbeat.usecases.wakeups import promote_deferred
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import Cancellation
from reveille_heartbeat.usecases.wakeups.known_wishes import Enqueued
from reveille_runtime.ids import new_id

QUEUED, DEFERRED = WakeupState.QUEUED, WakeupState.DEFERRED
ANN = Requester(RequesterKind.AGENT, "ann")


async def at_work(desk: Desk, issue: UUID, agent: UUID | None = None) -> tuple[Enqueued, UUID]:
    """Have a run hold an issue."""
    answer = await desk.one(desk.wish(agent or await desk.agent("at work"), issue))
    return answer, await desk.begin(answer.wakeup_id)


async def waiting(desk: Desk, issue: UUID, *names: str) -> list[Enqueued]:
    """Have agents wait for an issue, one after the other."""
    answers = [await desk.one(desk.wish(await desk.agent(name), issue)) for name in names]
    assert [each.state for each in answers] == [DEFERRED] * len(names)
    return answers


async def test_one_end_promotes_one_wake_the_oldest_under_its_own_id(desk: Desk) -> None:
    issue = await desk.issue(status="in_progress", priority=1)
    holder, _ = await at_work(desk, issue)
    waits = await waiting(desk, issue, "bob", "cid", "dan")
    await desk.end(holder.wakeup_id)

    assert await desk.states(waits) == [QUEUED, DEFERRED, DEFERRED]
    first = await desk.wakeup(waits[0].wakeup_id)
    assert (first.reason, first.attempts) == ("", 1)
    run = await desk.rows.fetchrow(
        "SELECT wakeup_id, state, ready_rank, priority FROM runs WHERE run_id = $1", first.run_id
    )
    assert run is not None
    assert tuple(run) == (first.wakeup_id, "queued", 0, 1)
    events = await desk.rows.fetch("SELECT subject_id FROM feed WHERE type = 'run.queued'")
    assert str(first.run_id) in {row["subject_id"] for row in events}
    await desk.begin(first.wakeup_id)
    await desk.end(first.wakeup_id)
    assert await desk.states(waits) == [WakeupState.COMPLETED, QUEUED, DEFERRED]


async def test_nothing_is_promoted_while_another_occurrence_waits_for_the_issue(
    desk: Desk,
) -> None:
    issue, agent = await desk.issue(), await desk.agent()
    first, second = await desk.wake(
        desk.keyed("webhook:1", agent, issue), desk.keyed("webhook:2", agent, issue)
    )
    (waits,) = await waiting(desk, issue, "bob")
    await desk.begin(first.wakeup_id)
    await desk.end(first.wakeup_id)

    assert await desk.states([second, waits]) == [QUEUED, DEFERRED]
    await desk.begin(second.wakeup_id)
    await desk.end(second.wakeup_id)
    assert await desk.states([waits]) == [QUEUED]


async def test_a_run_that_nobody_waits_behind_is_followed_by_nothing(desk: Desk) -> None:
    issue = await desk.issue()
    holder, _ = await at_work(desk, issue)
    await desk.end(holder.wakeup_id)

    assert await desk.runs() == 1
    assert await desk.sweep() == 0


async def test_a_cancelled_run_frees_its_issue_too(desk: Desk) -> None:
    issue, agent = await desk.issue(), await desk.agent()
    await desk.one(desk.keyed("webhook:1", agent, issue))
    (waits,) = await waiting(desk, issue, "bob")
    await desk.cancel([Cancellation(desk.workspace_id, "webhook:1", "max")])

    assert await desk.states([waits]) == [QUEUED]


async def test_a_run_that_has_ended_keeps_its_issue_until_its_follow_up(desk: Desk) -> None:
    issue = await desk.issue()
    await at_work(desk, issue)
    await desk.one(desk.keyed("webhook:1", await desk.agent(), issue))
    (waits,) = await waiting(desk, issue, "bob")
    await desk.rows.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = clock() WHERE occupied"
    )
    await desk.cancel([Cancellation(desk.workspace_id, "webhook:1", "max")])

    assert await desk.states([waits]) == [DEFERRED]


async def test_who_cannot_use_the_turn_says_why_and_the_next_has_it(desk: Desk) -> None:
    issue = await desk.issue()
    holder, _ = await at_work(desk, issue)
    resting, managed, nowhere, fine = await waiting(desk, issue, "bob", "cid", "dan", "eve")
    joined = await desk.one(desk.wish((await desk.wakeup(resting.wakeup_id)).agent_id, issue))
    boss = await desk.agent("boss", state="archived", archived_at="2026-11-30")
    for change in (
        "state = 'paused', paused_at = clock() WHERE name = 'bob'",
        f"manager_agent_id = '{boss}' WHERE name = 'cid'",
        "runtime_id = NULL WHERE name = 'dan'",
    ):
        await desk.rows.execute(f"UPDATE agents SET {change}")
    await desk.end(holder.wakeup_id)

    failed = WakeupState.FAILED
    assert await desk.states([resting, managed, nowhere, fine]) == [failed] * 3 + [QUEUED]
    assert await desk.states([joined]) == [failed]
    reasons = [(await desk.wakeup(each.wakeup_id)).reason for each in (resting, managed, nowhere)]
    assert reasons == [Reason.AGENT_NOT_INVOKABLE] * 2 + [Reason.AGENT_RUNTIME_REQUIRED]


async def test_under_a_hold_only_a_word_on_the_issue_gets_its_turn(desk: Desk) -> None:
    root = await desk.issue()
    issue = await desk.issue(parent_issue_id=root)
    holder, _ = await at_work(desk, issue)
    (silent,) = await waiting(desk, issue, "bob")
    cid, dan = await desk.agent("cid"), await desk.agent("dan")
    comment, other = await desk.comment(issue), await desk.comment(issue)
    word = await desk.one(desk.commented(cid, issue, comment))
    # A word that joined something else still counts.
    late = await desk.one(desk.wish(dan, issue))
    assert (await desk.one(desk.commented(dan, issue, other))).state is WakeupState.COALESCED
    await desk.hold(root)
    await desk.end(holder.wakeup_id)

    assert await desk.states([silent, word, late]) == [WakeupState.CANCELLED, QUEUED, DEFERRED]
    assert (await desk.wakeup(silent.wakeup_id)).reason == Reason.ISSUE_TREE_HELD
    stored = await desk.wakeup(word.wakeup_id)
    assert stored.context["tree_hold_interaction"] is True
    async with desk.db.session() as tx:
        words = (await read_words(tx, [stored]))[stored.wakeup_id]
    assert [(each.comment_id, each.body) for each in words.comments] == [
        (comment, "What about this?")
    ]
    await desk.begin(word.wakeup_id)
    await desk.end(word.wakeup_id)
    assert await desk.states([late]) == [QUEUED]


async def test_what_blocks_the_issue_by_now_blocks_who_waited(desk: Desk) -> None:
    issue = await desk.issue()
    holder, _ = await at_work(desk, issue)
    (waits,) = await waiting(desk, issue, "bob")
    await desk.block(issue, await desk.issue())
    await desk.end(holder.wakeup_id)

    assert await desk.states([waits]) == [WakeupState.SKIPPED]
    assert (await desk.wakeup(waits.wakeup_id)).reason == Reason.ISSUE_DEPENDENCIES_BLOCKED


async def test_a_persons_comment_opens_a_done_issue_again(desk: Desk) -> None:
    issue, agent = await desk.issue(status="in_progress"), await desk.agent()
    holder, _ = await at_work(desk, issue, agent)
    comment = await desk.comment(issue)
    word = await desk.one(desk.commented(agent, issue, comment))
    await desk.rows.execute("UPDATE issues SET status = 'done' WHERE issue_id = $1", issue)
    await desk.end(holder.wakeup_id)

    assert await desk.states([word]) == [QUEUED]
    assert (await desk.wakeup(word.wakeup_id)).context["reopened_from"] == "done"
    assert await desk.rows.fetchval("SELECT status FROM issues") == "todo"
    told = await desk.rows.fetch("SELECT payload FROM feed WHERE type = 'issue.updated'")
    assert [row["payload"]["status"] for row in told] == ["todo"]


@pytest.mark.parametrize("by_the_run_itself", [False, True])
async def test_what_no_person_said_opens_nothing_again(desk: Desk, by_the_run_itself: bool) -> None:
    issue = await desk.issue(status="in_progress")
    holder, run_id = await at_work(desk, issue)
    author = MAX if by_the_run_itself else ANN
    comment = await desk.comment(issue, author, run_id=run_id)
    agent = await desk.agent()
    mention = await desk.one(
        desk.commented(
            agent, issue, comment, requester=author, wake_reason="issue_comment_mentioned"
        )
    )
    silent = await desk.one(desk.wish(await desk.agent("bob"), issue))
    await desk.rows.execute("UPDATE issues SET status = 'done' WHERE issue_id = $1", issue)
    await desk.end(holder.wakeup_id)

    # Who was asked may answer; the issue stays as it is.
    assert await desk.states([mention, silent]) == [QUEUED, DEFERRED]
    assert await desk.rows.fetchval("SELECT status FROM issues") == "done"
    await desk.begin(mention.wakeup_id)
    await desk.end(mention.wakeup_id)
    assert await desk.states([silent]) == [WakeupState.SKIPPED]
    assert (await desk.wakeup(silent.wakeup_id)).reason == Reason.ISSUE_CLOSED


async def strand(desk: Desk) -> UUID:
    """Have a wake wait behind a run that ended without seeing to it."""
    issue = await desk.issue()
    holder = await desk.one(desk.wish(await desk.agent(str(issue)), issue))
    (waits,) = await waiting(desk, issue, f"behind {issue}")
    await desk.rows.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = clock(), follow_up_done_at = clock()"
        " WHERE wakeup_id = $1",
        holder.wakeup_id,
    )
    return waits.wakeup_id


async def test_the_sweep_finds_all_that_nobody_promoted_page_by_page(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promote_deferred, "_PAGE", 2)
    stranded = [await strand(desk) for _ in range(5)]
    issue = await desk.issue()
    await at_work(desk, issue)
    (busy,) = await waiting(desk, issue, "bob")

    assert await desk.sweep() == 5
    for wakeup_id in stranded:
        assert (await desk.wakeup(wakeup_id)).state is QUEUED
    assert await desk.states([busy]) == [DEFERRED]
    assert await desk.sweep() == 0


async def test_one_issues_trouble_does_not_keep_the_sweep_from_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, fine = [await strand(desk) for _ in range(2)]
    # A run of this id is there already: the first promotion cannot be written.
    taken: UUID = await desk.rows.fetchval("SELECT run_id FROM runs LIMIT 1")
    ids = chain([taken], iter(new_id, None))
    monkeypatch.setattr(desk.decider, "_new_id", lambda: next(ids))
    monkeypatch.setattr(promote_deferred, "_PAGE", 1)

    assert await desk.sweep() == 1
    monkeypatch.undo()
    states = {(await desk.wakeup(each)).state for each in (broken, fine)}
    assert states == {QUEUED, DEFERRED}
    assert await desk.sweep() == 1
