"""Holds on trees of issues, and who owns an issue: both decide whether work goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.issue_desk import (
    Desk,
    Rows,
    blocked_writers,
    fields_refused,
    open_desk,
    refused,
)
from tests.integration.heartbeat.kit import MEMBER, World
from tests.integration.heartbeat.replica import Replicas
from tests.integration.heartbeat.test_processes import linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import hold_pb2, issue_pb2
from reveille_heartbeat import crash_points
from reveille_heartbeat.adapters.process.identity import is_alive
from reveille_heartbeat.usecases.runs.held_run import HeldRun
from reveille_runtime.access import Role
from reveille_runtime.errors import (
    Aborted,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from reveille_runtime.lease import Lease
from reveille_testkit.database import TestDatabase

TODO, PROGRESS, REVIEW, DONE, CANCELLED = (
    issue_pb2.ISSUE_STATUS_TODO,
    issue_pb2.ISSUE_STATUS_IN_PROGRESS,
    issue_pb2.ISSUE_STATUS_IN_REVIEW,
    issue_pb2.ISSUE_STATUS_DONE,
    issue_pb2.ISSUE_STATUS_CANCELLED,
)


@pytest.fixture
async def desk(stage: Stage, rows: Rows) -> Desk:
    """A workspace whose queue nobody serves."""
    return await open_desk(stage, rows)


async def hold(desk: Desk, issue: str, **more: Any) -> hold_pb2.HoldIssueTreeResponse:
    answer: hold_pb2.HoldIssueTreeResponse = await desk.me.HoldIssueTree(
        hold_pb2.HoldIssueTreeRequest(root_issue_id=issue, **more)
    )
    return answer


async def release(desk: Desk, issue: str) -> hold_pb2.IssueHold:
    answer = await desk.me.ReleaseIssueTree(hold_pb2.ReleaseIssueTreeRequest(root_issue_id=issue))
    released: hold_pb2.IssueHold = answer.hold
    return released


async def test_a_paused_tree_rests_until_it_is_released(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    root = await desk.create("root")
    waiting = await desk.create(parent_issue_id="abc-1", assignee_agent_id=ann.agent_id)
    below = await desk.create(parent_issue_id=waiting.issue_id, assignee_agent_id=bob.agent_id)
    ended = await desk.create(parent_issue_id=root.issue_id)
    await desk.update(ended.issue_id, status=DONE)
    working = await desk.begin(below.issue_id)

    held = await hold(desk, "abc-1", reason="budget talks", let_runs_finish=True)
    assert (held.hold.active, held.cancelled_wakeups) == (True, 1)
    found = {each.issue_id: (each.depth, each.skip_reason) for each in held.hold.members}
    assert found == {
        root.issue_id: (0, ""),
        waiting.issue_id: (1, ""),
        ended.issue_id: (1, "terminal_status"),
        below.issue_id: (2, ""),
    }
    assert (await desk.get(below.issue_id)).hold_id == held.hold.hold_id
    (first,) = await desk.wakes(waiting.issue_id)
    assert (first.state, first.why) == ("cancelled", "issue_tree_held")
    assert (await desk.world.run(working)).occupied
    assert isinstance(await refused(hold(desk, root.issue_id)), FailedPrecondition)

    refusal = await desk.wish(bob.agent_id, below.issue_id)
    assert refusal.reason == reason_pb2.REASON_ISSUE_TREE_HELD
    spoken = await desk.say(waiting.issue_id, "Why does it rest?")
    context = await desk.rows.fetchval(
        "SELECT context FROM wakeup_requests WHERE wakeup_id = $1",
        UUID(spoken.wakeups[0].wakeup_id),
    )
    assert context["tree_hold_interaction"] is True
    await desk.end(working)

    released = await release(desk, root.issue_id)
    assert (released.active, released.released_by) == (False, "user:olga")
    # What the hold kept from its agents is asked for again: joined where one waits already.
    assert [each.reason for each in await desk.wakes(waiting.issue_id)][2:] == [
        "issue_tree_restored"
    ]
    assert (await desk.reasons(below.issue_id))[-1] == ("issue_tree_restored", "queued")
    assert isinstance(await refused(release(desk, root.issue_id)), FailedPrecondition)
    assert await desk.events(root.issue_id) == ["issue.created", "issue.held", "issue.released"]


async def test_a_pause_ends_runs_at_work_and_passes_over_what_is_said(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    other = await desk.create(parent_issue_id=issue.issue_id, assignee_agent_id=bob.agent_id)
    await desk.end(await desk.begin(other.issue_id))
    await desk.say(other.issue_id)
    held = await hold(desk, issue.issue_id)
    assert held.cancelled_wakeups == 1
    run = await desk.rows.fetchrow("SELECT state, reason FROM runs WHERE run_id = $1", run_id)
    assert run is not None
    assert (run["state"], run["reason"]) == ("cancelled", "issue_tree_held")
    assert (await desk.reasons(other.issue_id))[-1] == ("issue_commented", "queued")


async def test_what_is_said_outlives_a_pause_and_another_owner_where_it_joined_a_wake(
    desk: Desk,
) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    await desk.say(issue.issue_id, "Mind the migration.")
    assert await desk.reasons(issue.issue_id) == [
        ("issue_assigned", "queued"),
        ("issue_commented", "coalesced"),
    ]

    assert (await hold(desk, issue.issue_id)).cancelled_wakeups == 0
    await desk.update(issue.issue_id, assignee_agent_id=bob.agent_id)

    assert ("issue_assigned", "queued") in await desk.reasons(issue.issue_id)


async def test_a_hold_whose_maker_died_stops_the_agent_all_the_same(
    stage: Stage, replicas: Replicas, rows: Rows
) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.script(linger(stage.folder / "pid"))
    made = await world.issue(agent)
    process = await process_in(stage.folder / "pid")
    doomed = await replicas.start(
        crash_point=crash_points.ISSUE_STOPPED_AFTER_COMMIT, engine_concurrency=0
    )
    there = Desk(World(await replicas.client(doomed), stage.folder, world.workspace_id), rows)
    assert isinstance(await refused(hold(there, made.issue.issue_id)), Unavailable)
    assert await doomed.ended() == 137, doomed.log.read_text()

    wakeup = await world.settled(made.wakeup.wakeup_id)
    assert wakeup.reason == reason_pb2.REASON_ISSUE_TREE_HELD
    assert not is_alive(process)


async def test_a_cancelled_tree_gets_back_what_nobody_has_changed(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    root = await desk.create("root", assignee_agent_id=ann.agent_id)
    review = await desk.create(parent_issue_id=root.issue_id)
    await desk.update(review.issue_id, status=REVIEW)
    opened = await desk.create(parent_issue_id=root.issue_id)
    again = await desk.create(parent_issue_id=root.issue_id)
    blocked = await desk.create(blocker_issue_ids=[root.issue_id], assignee_agent_id=ann.agent_id)

    held = await hold(desk, root.issue_id, mode=hold_pb2.HOLD_MODE_CANCEL)
    assert {each.status_after for each in held.hold.members} == {"cancelled"}
    assert (await desk.wakes(root.issue_id))[0].why == "issue_cancelled"
    assert (await desk.get(review.issue_id)).status == CANCELLED
    # A cancelled blocker resolves nothing.
    assert [each.reason for each in await desk.wakes(blocked.issue_id)] == ["issue_assigned"]
    await desk.update(opened.issue_id, status=TODO)
    await desk.update(again.issue_id, status=TODO)
    await desk.update(again.issue_id, status=CANCELLED)

    released = await release(desk, root.issue_id)
    kept = {each.issue_id for each in released.members if each.skip_reason}
    assert kept == {opened.issue_id, again.issue_id}
    assert {each.skip_reason for each in released.members} == {"", "changed_after_cancel"}
    statuses = [(await desk.get(each.issue_id)).status for each in (root, review, opened, again)]
    assert statuses == [TODO, REVIEW, TODO, CANCELLED]
    assert (await desk.reasons(root.issue_id))[-1] == ("issue_tree_restored", "queued")


async def test_a_hold_reaches_down_whoever_holds_another_below(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    names = ["top"]
    top = await desk.create("top")
    last = top
    for depth in range(3):
        last = await desk.create(str(depth), parent_issue_id=last.issue_id)
        names.append(last.title)
    await hold(desk, last.issue_id)
    above = await hold(desk, top.issue_id)
    assert [each.skip_reason for each in above.hold.members] == ["", "", "", "already_held"]
    await release(desk, last.issue_id)
    made = await desk.create(parent_issue_id=last.issue_id, assignee_agent_id=ann.agent_id)
    assert (await desk.wakes(made.issue_id))[0].why == "issue_tree_held"
    await release(desk, top.issue_id)
    assert (await desk.reasons(made.issue_id))[-1] == ("issue_tree_restored", "queued")


async def check_out(desk: Desk, issue_id: str, run_id: str, by: Any = None, **more: Any) -> Any:
    answer = await (by or desk.me).CheckoutIssue(
        issue_pb2.CheckoutIssueRequest(issue_id=issue_id, run_id=run_id, **more)
    )
    return answer.issue


async def give_back(desk: Desk, issue_id: str, by: Any = None, **more: Any) -> Any:
    answer = await (by or desk.me).ReleaseIssue(
        issue_pb2.ReleaseIssueRequest(issue_id=issue_id, **more)
    )
    return answer.issue


async def test_a_checkout_belongs_to_one_attempt_that_lives(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    agent = desk.run(run_id)
    mine = await check_out(desk, "abc-1", "", by=agent)
    assert (mine.status, mine.checkout_run_id, mine.execution_run_id) == (PROGRESS, run_id, run_id)
    assert mine.HasField("start_time")
    assert (await check_out(desk, issue.issue_id, run_id)).etag == mine.etag

    part = await desk.create(by=agent)
    taken = await check_out(desk, part.issue_id, run_id, by=agent)
    assert (taken.assignee_agent_id, taken.checkout_run_id) == (ann.agent_id, run_id)
    given = await desk.wish(bob.agent_id, part.issue_id, key="autopilot:1")
    other = await desk.begin(part.issue_id)
    await desk.rows.execute("UPDATE issues SET execution_run_id = $1", UUID(run_id))
    conflict = await refused(check_out(desk, part.issue_id, other))
    assert (type(conflict), conflict.reason) == (Aborted, "CHECKOUT_CONFLICT")
    assert conflict.metadata == {
        "status": "in_progress",
        "assignee_agent_id": ann.agent_id,
        "assignee_user_id": "",
        "checkout_run_id": run_id,
        "execution_run_id": run_id,
    }
    assert isinstance(await refused(give_back(desk, part.issue_id, by=desk.run(other))), Aborted)
    # Its owner is over: the lock that its rows still show counts no more, and the agent's next
    # attempt takes over; another agent's does not while the work is assigned.
    await desk.end(run_id)
    assert isinstance(await refused(check_out(desk, part.issue_id, other)), Aborted)
    await desk.wish(ann.agent_id, issue.issue_id, key="autopilot:2")
    follower = await desk.begin(issue.issue_id)
    adopted = await check_out(desk, issue.issue_id, follower)
    assert (adopted.checkout_run_id, adopted.execution_run_id) == (follower, follower)
    assert adopted.start_time == mine.start_time
    assert given.wakeup_id


async def test_an_attempt_that_waits_to_be_repeated_owns_its_issue_still(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    await check_out(desk, issue.issue_id, run_id)
    await desk.rows.execute(
        "UPDATE runs SET state = 'scheduled_retry', occupied = false, lease_token = NULL,"
        " lease_expires_at = NULL, started_at = NULL, scheduled_retry_at = clock() + '1 hour'"
    )
    await desk.wish(bob.agent_id, issue.issue_id, key="autopilot:1")
    other = await desk.begin(issue.issue_id)
    await desk.rows.execute(
        "UPDATE issues SET assignee_agent_id = NULL, execution_run_id = $1", UUID(run_id)
    )
    call = check_out(desk, issue.issue_id, other, expected_statuses=[PROGRESS])
    assert (await refused(call)).reason == "CHECKOUT_CONFLICT"


async def test_what_is_held_blocked_or_elsewhere_is_not_checked_out(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    blocker = await desk.create()
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    await desk.block(issue.issue_id, blocker.issue_id)
    waits = await refused(check_out(desk, issue.issue_id, run_id))
    assert (type(waits), waits.metadata["blockers"]) == (FailedPrecondition, "ABC-1")
    await desk.update(blocker.issue_id, status=CANCELLED)
    assert isinstance(await refused(check_out(desk, issue.issue_id, run_id)), FailedPrecondition)
    await desk.update(blocker.issue_id, status=TODO)
    await desk.update(blocker.issue_id, status=DONE)
    await hold(desk, issue.issue_id, let_runs_finish=True)
    held = await refused(check_out(desk, issue.issue_id, run_id))
    assert isinstance(held, FailedPrecondition)
    assert held.metadata["root_issue_id"] == issue.issue_id
    await release(desk, issue.issue_id)
    elsewhere = check_out(desk, issue.issue_id, run_id, expected_statuses=[REVIEW])
    assert (await refused(elsewhere)).reason == "CHECKOUT_CONFLICT"
    assert await fields_refused(check_out(desk, issue.issue_id, "x", expected_statuses=[DONE])) == {
        "run_id",
        "expected_statuses[0]",
    }
    assert isinstance(await refused(check_out(desk, issue.issue_id, str(uuid4()))), NotFound)
    assert isinstance(await refused(check_out(desk, blocker.issue_id, run_id)), NotFound)
    await desk.end(run_id)
    assert isinstance(await refused(check_out(desk, issue.issue_id, run_id)), FailedPrecondition)


async def test_two_attempts_at_one_issue_and_one_gets_it(
    desk: Desk, database: TestDatabase
) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    mine = await desk.begin(issue.issue_id)
    part = await desk.create(by=desk.run(mine))
    await desk.wish(bob.agent_id, part.issue_id, key="autopilot:1")
    theirs = await desk.begin(part.issue_id)
    await desk.rows.execute("UPDATE issues SET execution_run_id = NULL")
    other = await database.connect("reveille_heartbeat_app")
    async with other.transaction():
        await other.execute("SELECT FROM issues FOR NO KEY UPDATE")
        tries = [
            asyncio.ensure_future(check_out(desk, part.issue_id, each)) for each in (mine, theirs)
        ]
        await blocked_writers(desk.rows, 2)
    results = await asyncio.gather(*tries, return_exceptions=True)
    won = [each for each in results if isinstance(each, issue_pb2.Issue)]
    assert len(won) == 1
    assert (await desk.get(part.issue_id)).checkout_run_id == won[0].checkout_run_id


async def test_an_attempt_that_begins_takes_its_issue_or_goes_on_without(
    desk: Desk,
) -> None:
    (ann,) = await desk.agents("ann")
    held = HeldRun(desk.database, timedelta(seconds=30))

    async def begins(issue_id: str) -> bool:
        run_id = UUID(await desk.begin(issue_id))
        token = await desk.rows.fetchval("SELECT lease_token FROM runs WHERE run_id = $1", run_id)
        stolen = await held.check_out(Lease(run_id, uuid4()), await held.load(run_id))
        assert not stolen
        return await held.check_out(Lease(run_id, token), await held.load(run_id))

    issue = await desk.create(assignee_agent_id=ann.agent_id)
    assert await begins(issue.issue_id)
    mine = await desk.get(issue.issue_id)
    assert (mine.status, mine.checkout_run_id) == (PROGRESS, mine.execution_run_id)
    # The next attempt finds the last one's traces, and goes on with its work.
    await desk.end(mine.checkout_run_id)
    await desk.say(issue.issue_id)
    assert await begins(issue.issue_id)

    part = await desk.create(parent_issue_id=issue.issue_id, assignee_agent_id=ann.agent_id)
    other = await check_out(desk, part.issue_id, (await desk.get(issue.issue_id)).checkout_run_id)
    assert not await begins(part.issue_id)
    assert (await desk.get(part.issue_id)).checkout_run_id == other.checkout_run_id
    # Said on an issue that waits, it is answered, and the work waits on.
    waits = await desk.create(blocker_issue_ids=[issue.issue_id], assignee_agent_id=ann.agent_id)
    await desk.say(waits.issue_id)
    assert not await begins(waits.issue_id)
    assert (await desk.get(waits.issue_id)).status == TODO


async def test_an_issue_is_given_back_by_its_owner_or_by_force(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    agent = desk.run(run_id)
    await check_out(desk, issue.issue_id, run_id)
    await desk.wish(ann.agent_id, issue.issue_id)
    assert isinstance(await refused(give_back(desk, issue.issue_id)), Aborted)
    freed = await give_back(desk, issue.issue_id, by=agent)
    assert (freed.status, freed.assignee_agent_id, freed.checkout_run_id) == (TODO, "", "")
    assert freed.execution_run_id == ""
    assert (await desk.wakes(issue.issue_id))[-1].why == "issue_assignee_changed"

    await desk.update(issue.issue_id, assignee_user_id=MEMBER)
    rita = desk.user("rita")
    assert isinstance(await refused(give_back(desk, issue.issue_id, by=rita)), PermissionDenied)
    forced = give_back(desk, issue.issue_id, by=rita, force=True)
    assert isinstance(await refused(forced), PermissionDenied)
    assert (await give_back(desk, issue.issue_id, by=desk.user(MEMBER))).assignee_user_id == ""
    await desk.update(issue.issue_id, assignee_agent_id=bob.agent_id, status=DONE)
    admin = desk.user("ada", Role.ADMIN)
    ended = await give_back(desk, issue.issue_id, by=admin, force=True)
    assert (ended.status, ended.assignee_agent_id) == (DONE, "")
