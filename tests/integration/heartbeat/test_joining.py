"""What a wish meets under its lock: a wake to join, a run to wait for, or room of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.integration.heartbeat import executors
from tests.integration.heartbeat.desk import Desk

from reveille_heartbeat import migrations
from reveille_heartbeat.domain.document import LeftOut
from reveille_heartbeat.domain.placing import MAX_JOINED, MAX_TOLD_BYTES
from reveille_heartbeat.domain.queue import MAX_CLAIMED_BYTES
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Payload, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases.runs.loaded import Words, load
from reveille_runtime.lockorder import Level, LockOrder

COUNTED = Path(migrations.__file__).with_name("versions") / "0004_told_bytes_of_waiting.sql"
QUEUED, DEFERRED, COALESCED = WakeupState.QUEUED, WakeupState.DEFERRED, WakeupState.COALESCED


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


@pytest.mark.parametrize("at_once", [True, False])
async def test_of_two_decisions_each_is_told_with_its_own_wake(desk: Desk, at_once: bool) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)

    def decision(about: UUID | None, status: str) -> Wish:
        context = {"approval": {"status": status}}
        return desk.wish(agent, about, wake_reason=f"approval_{status}", context=context)

    wishes = [
        decision(issue, "approved"),
        decision(issue, "rejected"),
        # And one that joins a wake which brings none.
        desk.wish(agent),
        decision(None, "revision_requested"),
    ]
    if at_once:
        await desk.wake(*wishes)
    else:
        for each in wishes:
            await desk.one(each)
    claim = await executors.claimer(desk.database, 0)

    claimed = await claim(5)
    assert len(claimed) == 2
    told = [each.wakeup for each in claimed]
    told += [joined.wakeup for each in claimed for joined in each.words.joined]
    assert {each.wake_reason: each.context.get("approval", {}).get("status") for each in told} == {
        "robot_wants": "revision_requested",
        "approval_approved": "approved",
        "approval_rejected": "rejected",
        "approval_revision_requested": "revision_requested",
    }


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


async def test_a_wake_that_many_have_joined_is_full_and_the_next_is_joined_instead(
    desk: Desk,
) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    # Some in a batch, which has to count itself, and some alone.
    for about in (None, issue):
        answers = await desk.wake(*(desk.wish(agent, about) for _ in range(MAX_JOINED - 1)))
        answers += [await desk.one(desk.wish(agent, about)) for _ in range(3)]
        answers += await desk.wake(*(desk.wish(agent, about) for _ in range(3)))

        # Without an issue it has a run of its own at once; on one it waits for the first.
        alone = [(at, each.state) for at, each in enumerate(answers) if each.state is not COALESCED]
        assert alone == [(0, QUEUED), (MAX_JOINED + 1, QUEUED if about is None else DEFERRED)]
        counts = [
            (await desk.wakeup(answers[at].wakeup_id)).coalesced_count for at in (0, MAX_JOINED + 1)
        ]
        assert counts == [MAX_JOINED, 3]


async def test_a_batch_fills_a_wake_no_further_than_single_wishes_do(desk: Desk) -> None:
    agent = await desk.agent()
    answers = await desk.wake(*(desk.wish(agent) for _ in range(MAX_JOINED + 3)))

    alone = [at for at, each in enumerate(answers) if each.state is QUEUED]
    assert alone == [0, MAX_JOINED + 1]


@pytest.mark.parametrize("by", ["its own words", "what joined", "comments"])
async def test_a_wake_with_much_to_tell_is_full(desk: Desk, by: str) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    much = Payload(body=b"x" * (MAX_TOLD_BYTES // 2 + 1))
    own = Payload(body=much.body * 2) if by == "its own words" else Payload()
    first = await desk.one(desk.wish(agent, issue, payload=own))
    if by == "what joined":
        for _ in range(2):
            assert (await desk.one(desk.wish(agent, issue, payload=much))).state is COALESCED
    elif by == "comments":
        said = [await desk.comment(issue, body="x" * 100_000) for _ in range(42)]
        answers = await desk.wake(desk.commented(agent, issue, *said))
        assert [each.state for each in answers] == [COALESCED]

    waits = await desk.one(desk.wish(agent, issue))
    assert waits.state is DEFERRED
    assert (await desk.one(desk.wish(agent, issue))).state is COALESCED
    assert (await desk.wakeup(waits.wakeup_id)).coalesced_count == 1
    assert (await desk.wakeup(first.wakeup_id)).coalesced_count < 3


@pytest.mark.parametrize("made", ["at once", "one by one", "before that was counted"])
async def test_a_wake_says_how_much_its_run_is_told(desk: Desk, made: str) -> None:
    agent = await desk.agent()
    issue = await desk.issue(agent)
    one, two, three = [await desk.comment(issue, body=f"{at}: für") for at in range(3)]
    payload = Payload(body=b"12345", facts={"größe": "für"})
    wishes = [
        desk.wish(agent, issue, prompt="für", payload=payload),
        desk.commented(agent, issue, one, payload=payload),
        desk.commented(agent, issue, one, two),
        desk.wish(agent, issue, payload=payload),
        desk.commented(agent, issue, two, three),
    ]
    if made == "at once":
        answers = await desk.wake(*wishes)
    else:
        answers = [await desk.one(each) for each in wishes]
    assert [each.state for each in answers] == [QUEUED] + [COALESCED] * 4
    if made == "before that was counted":
        await desk.rows.execute("UPDATE wakeup_requests SET told_bytes = 0")
        await desk.rows.execute(COUNTED.read_text(encoding="utf-8"))

    claim = await executors.claimer(desk.database, 0)
    (loaded,) = await claim(5)
    words = loaded.words
    texts = [words.prompt, *(each.prompt for each in words.joined)]
    payloads = [words.payload, *(each.payload for each in words.joined)]
    texts += [text for each in payloads for fact in each.facts.items() for text in fact]
    texts += [each.body for each in words.comments]
    assert len(words.comments) == 3
    told = sum(len(text.encode()) for text in texts) + sum(len(each.body) for each in payloads)
    assert told == await desk.rows.fetchval(
        "SELECT told_bytes FROM wakeup_requests WHERE wakeup_id = $1", loaded.wakeup.wakeup_id
    )


async def test_runs_with_much_to_tell_are_claimed_a_few_at_a_time(desk: Desk) -> None:
    agent = await desk.agent(max_concurrent_runs=50)
    much = Payload(body=b"x" * (MAX_CLAIMED_BYTES // 3))
    answers = [await desk.one(desk.wish(agent, task_key=str(at), payload=much)) for at in range(4)]
    answers += await desk.wake(*(desk.wish(agent, task_key=f"few {at}") for at in range(5)))
    claim = await executors.claimer(desk.database, 0)

    order = []
    for count, more in ((3, True), (6, False)):
        claimed = await claim(50)
        assert (len(claimed), claim.more) == (count, more)
        order += [each.wakeup.wakeup_id for each in claimed]
    # Each in its turn: nothing small goes before it.
    assert order[:4] == [each.wakeup_id for each in answers[:4]]
    assert set(order) == {each.wakeup_id for each in answers}


async def test_a_run_with_more_to_tell_than_all_may_be_is_claimed_alone(desk: Desk) -> None:
    agent = await desk.agent(max_concurrent_runs=50)
    for at in range(3):
        await desk.one(desk.wish(agent, task_key=str(at)))
    await desk.rows.execute("UPDATE wakeup_requests SET told_bytes = $1", 2 * MAX_CLAIMED_BYTES)
    claim = await executors.claimer(desk.database, 0)

    assert [len(await claim(50)) for _ in range(4)] == [1, 1, 1, 0]
    assert not claim.more


async def test_wishes_at_once_fill_a_wake_to_the_brim_and_no_further(desk: Desk) -> None:
    agent = await desk.agent()
    first = await desk.one(desk.wish(agent))
    await desk.rows.execute("UPDATE wakeup_requests SET coalesced_count = $1", MAX_JOINED - 2)
    answers = await asyncio.gather(*(desk.one(desk.wish(agent)) for _ in range(8)))

    assert (await desk.wakeup(first.wakeup_id)).coalesced_count == MAX_JOINED
    assert sum(each.state is QUEUED for each in answers) == 1


async def test_what_is_stored_beyond_all_bounds_is_claimed_in_part_with_a_mark(
    desk: Desk,
) -> None:
    """As it was left by a version that let everything join: 150 MiB, and 20 MB of comments."""
    agent = await desk.agent()
    issue = await desk.issue(agent)
    said = [await desk.comment(issue, body=str(at) + "x" * 99_990) for at in range(200)]
    first = await desk.one(desk.wish(agent, issue))
    await desk.rows.execute(
        "UPDATE wakeup_requests SET comment_ids = $1, coalesced_count = 150", said
    )
    await desk.rows.execute(
        """
        INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, issue_id, source,
            wake_reason, title, state, reason, caller, joined_wakeup_id, created_at)
        SELECT md5(n::text)::uuid, workspace_id, agent_id, issue_id, source, wake_reason,
            n::text, 'coalesced', 'coalesced', caller, wakeup_id, created_at + n * interval '1 s'
        FROM wakeup_requests, generate_series(1, 150) n
        """
    )
    await desk.rows.execute(
        "INSERT INTO wakeup_payloads (wakeup_id, body) SELECT md5(n::text)::uuid,"
        " convert_to(repeat('x', 1048576), 'UTF8') FROM generate_series(1, 150) n"
    )
    claim = await executors.claimer(desk.database, 0)

    (loaded,) = await claim(5)
    words = loaded.words
    # The oldest, in their order.
    assert [one.wakeup.title for one in words.joined] == [str(n) for n in range(1, 9)]
    assert words.left_out.joined == 142
    told = [one.body for one in words.comments]
    assert [body.partition("x")[0] for body in told] == [str(at) for at in range(len(told))]
    assert sum(map(len, told)) < 2 * MAX_TOLD_BYTES + 200_000
    assert words.left_out.comments == 200 - len(told) > 100
    assert first.wakeup_id == loaded.wakeup.wakeup_id
    async with desk.db.session() as tx:
        again = await load(tx, loaded.run.run_id)
    # Its agent has been told, so whoever takes it over reads nothing of it.
    assert again.words == Words()


async def test_as_much_as_may_join_is_told_whole(desk: Desk) -> None:
    agent = await desk.agent()
    answers = await desk.wake(*(desk.wish(agent) for _ in range(MAX_JOINED + 1)))
    claim = await executors.claimer(desk.database, 0)

    (loaded,) = await claim(5)
    told = [each.wakeup.wakeup_id for each in loaded.words.joined]
    assert sorted(told) == sorted(each.wakeup_id for each in answers[1:])
    assert loaded.words.left_out == LeftOut()


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
