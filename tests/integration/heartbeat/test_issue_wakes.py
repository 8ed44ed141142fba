"""Who is woken by what happens to issues: assignment, review, comments, blockers, parts."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.issue_desk import (
    Desk,
    Rows,
    Wake,
    blocked_writers,
    fields_refused,
    open_desk,
    refused,
)
from tests.integration.heartbeat.kit import World

from reveille.heartbeat.v1 import approval_pb2, issue_pb2
from reveille_heartbeat.usecases.issues.moving import lock_related
from reveille_runtime.errors import Aborted, FailedPrecondition, InvalidArgument, NotFound
from reveille_runtime.lockorder import LockOrder
from reveille_testkit.database import TestDatabase
from reveille_testkit.waiting import eventually

BACKLOG, TODO, PROGRESS, REVIEW, DONE, CANCELLED = (
    issue_pb2.ISSUE_STATUS_BACKLOG,
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


async def test_a_new_owner_is_woken_and_what_waits_for_the_old_one_ends(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    await desk.wish(ann.agent_id, issue.issue_id, key="autopilot:1")
    await desk.wish(ann.agent_id, issue.issue_id)
    assert await desk.reasons(issue.issue_id) == [
        ("issue_assigned", "queued"),
        ("autopilot_run", "queued"),
        ("autopilot_run", "coalesced"),
    ]
    await desk.update(issue.issue_id, assignee_agent_id=bob.agent_id)
    wakes = await desk.wakes(issue.issue_id)
    assert [(each.state, each.why) for each in wakes] == [
        ("skipped", "issue_assignee_changed"),
        ("skipped", "issue_assignee_changed"),
        ("cancelled", "issue_assignee_changed"),
        ("queued", ""),
    ]
    assert wakes[-1] == Wake(bob.agent_id, "issue_assigned", "queued")
    runs = await desk.rows.fetch("SELECT state FROM runs WHERE agent_id = $1", UUID(ann.agent_id))
    assert {row["state"] for row in runs} == {"cancelled"}


async def test_a_comment_reaches_an_agent_although_the_work_is_anothers_now(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    await desk.end(await desk.begin(issue.issue_id))
    await desk.say(issue.issue_id)
    await desk.update(issue.issue_id, assignee_agent_id=bob.agent_id)
    assert await desk.reasons(issue.issue_id) == [
        ("issue_assigned", "completed"),
        ("issue_commented", "queued"),
        ("issue_assigned", "deferred"),
    ]


async def test_a_review_is_asked_of_its_judge_and_answered_to_the_owner(desk: Desk) -> None:
    ann, bob, cid = await desk.agents("ann", "bob", "cid")
    issue = await desk.create(assignee_agent_id=ann.agent_id, reviewer_agent_id=bob.agent_id)
    run_id = await desk.begin(issue.issue_id)
    await desk.update(issue.issue_id, by=desk.run(run_id), status=REVIEW)
    assert (await desk.wakes(issue.issue_id))[1] == Wake(
        bob.agent_id, "execution_review_requested", "deferred", "issue_busy"
    )
    await desk.end(run_id)
    await desk.update(issue.issue_id, reviewer_agent_id=cid.agent_id)
    asked = (await desk.wakes(issue.issue_id))[1:]
    assert asked == [
        Wake(bob.agent_id, "execution_review_requested", "skipped", "issue_reviewer_changed"),
        Wake(cid.agent_id, "execution_review_requested", "queued"),
    ]
    judge = await desk.begin(issue.issue_id)
    await desk.update(issue.issue_id, by=desk.run(judge), status=PROGRESS)
    assert (await desk.wakes(issue.issue_id))[-1] == Wake(
        ann.agent_id, "execution_changes_requested", "deferred", "issue_busy"
    )


async def test_a_comment_wakes_the_owner_and_who_is_mentioned_but_not_its_author(
    desk: Desk,
) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    heard = "SELECT last_input_at FROM issues WHERE issue_id = $1"
    before = await desk.rows.fetchval(heard, UUID(issue.issue_id))
    own = await desk.say(issue.issue_id, "I begin.", by=desk.run(run_id))
    assert list(own.wakeups) == []
    assert await desk.rows.fetchval(heard, UUID(issue.issue_id)) == before
    request = issue_pb2.AddCommentRequest(
        issue_id=issue.issue_id,
        body="Both of you.",
        mentioned_agent_ids=[bob.agent_id, ann.agent_id],
        request_id="once",
    )
    said = await desk.me.AddComment(request)
    assert await desk.rows.fetchval(heard, UUID(issue.issue_id)) > before
    assert await desk.me.AddComment(request) == issue_pb2.AddCommentResponse(
        comment=said.comment,
        wakeups=[
            issue_pb2.AddCommentResponse().wakeups.add(
                wakeup_id=each.wakeup_id,
                state=each.state,
                reason=each.reason,
                message=each.message,
                existed=True,
            )
            for each in said.wakeups
        ],
    )
    assert (await desk.wakes(issue.issue_id))[1:] == [
        Wake(ann.agent_id, "issue_commented", "deferred", "issue_busy"),
        Wake(bob.agent_id, "issue_comment_mentioned", "deferred", "issue_busy"),
    ]
    prompt = await desk.rows.fetchval(
        "SELECT prompt FROM wakeup_payloads WHERE wakeup_id = $1", UUID(said.wakeups[0].wakeup_id)
    )
    assert prompt == "Both of you."
    page = await desk.me.ListComments(
        issue_pb2.ListCommentsRequest(issue_id=issue.identifier, page_size=1)
    )
    rest = await desk.me.ListComments(
        issue_pb2.ListCommentsRequest(issue_id=issue.identifier, page_token=page.next_page_token)
    )
    told = [(each.body, each.author_kind) for each in (*page.comments, *rest.comments)]
    assert told == [
        ("I begin.", issue_pb2.COMMENT_AUTHOR_KIND_AGENT),
        ("Both of you.", issue_pb2.COMMENT_AUTHOR_KIND_USER),
    ]
    assert await fields_refused(desk.say(issue.issue_id, " ")) == {"body"}
    assert await fields_refused(desk.say(issue.issue_id, mentioned_agent_ids=["x"])) == {
        "mentioned_agent_ids[0]"
    }


async def test_a_person_opens_an_ended_issue_with_a_comment_and_an_agent_does_not(
    desk: Desk,
) -> None:
    ann, bob, cid = await desk.agents("ann", "bob", "cid")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    other = await desk.create(assignee_agent_id=bob.agent_id)
    await desk.end(await desk.begin(issue.issue_id))
    run_id = await desk.begin(other.issue_id)
    await desk.update(other.issue_id, assignee_agent_id=cid.agent_id)
    await desk.update(other.issue_id, status=DONE)
    await desk.say(other.issue_id, by=desk.run(run_id), mentioned_agent_ids=[ann.agent_id])
    assert (await desk.get(other.issue_id)).status == DONE
    assert ("issue_comment_mentioned", "deferred") in await desk.reasons(other.issue_id)
    # Said on an issue that is nobody's to work on, it stays as it is.
    alone = await desk.create()
    await desk.update(alone.issue_id, status=DONE)
    await desk.say(alone.issue_id)
    assert (await desk.get(alone.issue_id)).status == DONE

    await desk.update(issue.issue_id, status=DONE)
    ended = await desk.get(issue.issue_id)
    assert ended.HasField("end_time")
    await desk.say(issue.issue_id, "It is broken again.")
    opened = await desk.get(issue.issue_id)
    assert (opened.status, opened.HasField("end_time")) == (TODO, False)
    assert (await desk.reasons(issue.issue_id))[-1] == ("issue_reopened_via_comment", "queued")


async def test_what_was_blocked_goes_on_once_when_all_of_it_is_done(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    first, second = await desk.create("first"), await desk.create("second")
    waits = await desk.create(
        blocker_issue_ids=[first.issue_id, second.issue_id], assignee_agent_id=ann.agent_id
    )
    assert (await desk.wakes(waits.issue_id))[0].why == "issue_dependencies_blocked"
    # What somebody said reaches the agent all the same; its run comes last until the way is free.
    await desk.say(waits.issue_id)
    rank = "SELECT ready_rank FROM runs WHERE issue_id = $1 AND state = 'queued'"
    assert await desk.rows.fetchval(rank, UUID(waits.issue_id)) == 3
    await desk.update(first.issue_id, status=DONE)
    await desk.update(second.issue_id, status=CANCELLED)
    assert len(await desk.wakes(waits.issue_id)) == 2
    await desk.update(second.issue_id, status=TODO)
    await desk.update(second.issue_id, status=DONE)
    told = ("issue_blockers_resolved", "coalesced")
    assert (await desk.reasons(waits.issue_id))[2:] == [told]
    assert await desk.rows.fetchval(rank, UUID(waits.issue_id)) == 1
    # The same state again is the same news; a blocker that ended anew is not.
    await desk.update(second.issue_id, status=TODO)
    assert await desk.rows.fetchval(rank, UUID(waits.issue_id)) == 3
    await desk.update(second.issue_id, status=DONE)
    assert (await desk.reasons(waits.issue_id))[2:] == [told, told]


async def test_what_was_asked_while_an_issue_was_kept_is_not_lost(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create(assignee_agent_id=ann.agent_id, reviewer_agent_id=bob.agent_id)
    run_id = await desk.begin(issue.issue_id)
    request = approval_pb2.RequestApprovalRequest(title="May I?")
    asked = (await desk.run(run_id).RequestApproval(request)).approval
    await desk.end(run_id)
    blocker = await desk.create("first")
    await desk.me.AddRelation(
        issue_pb2.AddRelationRequest(issue_id=issue.issue_id, blocker_issue_id=blocker.issue_id)
    )
    # A judge waits for the way to be free; an answer goes to the agent that asked.
    await desk.update(issue.issue_id, status=REVIEW)
    await resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_APPROVED)
    await desk.update(blocker.issue_id, status=DONE)
    review = "execution_review_requested"
    assert (await desk.wakes(issue.issue_id))[1:] == [
        Wake(bob.agent_id, review, "skipped", "issue_dependencies_blocked"),
        Wake(ann.agent_id, "approval_approved", "queued"),
        Wake(ann.agent_id, "issue_blockers_resolved", "coalesced", "coalesced"),
        Wake(bob.agent_id, review, "deferred", "issue_busy"),
    ]


async def test_two_blockers_done_at_once_wake_their_dependent_once(
    desk: Desk, database: TestDatabase
) -> None:
    (ann,) = await desk.agents("ann")
    first, second = await desk.create("first"), await desk.create("second")
    waits = await desk.create(
        blocker_issue_ids=[first.issue_id, second.issue_id], assignee_agent_id=ann.agent_id
    )
    other = await database.connect("reveille_heartbeat_app")
    async with other.transaction():
        await other.execute(
            "SELECT FROM issues WHERE issue_id = $1 FOR NO KEY UPDATE", UUID(waits.issue_id)
        )
        moves = [
            asyncio.ensure_future(desk.update(each.issue_id, status=DONE))
            for each in (first, second)
        ]
        await blocked_writers(desk.rows, 2)
    await asyncio.gather(*moves)
    assert (await desk.reasons(waits.issue_id))[1:] == [("issue_blockers_resolved", "queued")]


async def test_what_is_tied_while_its_blocker_ends_is_not_forgotten(
    desk: Desk, database: TestDatabase
) -> None:
    (ann,) = await desk.agents("ann")
    blocker = await desk.create()
    waits = await desk.create(assignee_agent_id=ann.agent_id)
    await desk.end(await desk.begin(waits.issue_id))

    async def lock() -> None:
        async with desk.database.transaction() as tx:
            await lock_related(tx, LockOrder(), [UUID(blocker.issue_id)])

    other = await database.connect("reveille_heartbeat_app")
    async with other.transaction():
        await other.execute(
            "SELECT FROM issues WHERE issue_id = $1 FOR NO KEY UPDATE", UUID(blocker.issue_id)
        )
        move = asyncio.ensure_future(desk.update(blocker.issue_id, status=DONE))
        look = asyncio.ensure_future(lock())
        await blocked_writers(desk.rows, 2)
        # Both have looked around, and wait; what they see then is not all that they have locked.
        await other.execute(
            "INSERT INTO issue_relations (issue_id, blocker_issue_id) VALUES ($1, $2)",
            UUID(waits.issue_id),
            UUID(blocker.issue_id),
        )
    with pytest.raises(asyncpg.SerializationError):
        await look
    await move
    assert (await desk.reasons(waits.issue_id))[1:] == [("issue_blockers_resolved", "queued")]


async def test_a_parent_is_told_when_the_last_part_has_ended(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    parent = await desk.create(assignee_agent_id=ann.agent_id)
    await desk.end(await desk.begin(parent.issue_id))
    parts = [await desk.create(f"{n}", parent_issue_id=parent.issue_id) for n in range(3)]
    await desk.update(parts[0].issue_id, status=DONE)
    await desk.update(parts[1].issue_id, status=CANCELLED)
    assert len(await desk.wakes(parent.issue_id)) == 1
    await desk.me.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=parts[2].issue_id))
    assert (await desk.reasons(parent.issue_id))[1:] == [("issue_children_completed", "queued")]


async def test_relations_make_no_circle_and_are_bounded(desk: Desk) -> None:
    a, b, c = [await desk.create(name) for name in "abc"]
    await desk.block("abc-2", "abc-1")
    tied = await desk.block(c.issue_id, b.issue_id)
    assert list(tied.blocker_issue_ids) == [b.issue_id]
    assert (await desk.block(c.issue_id, b.issue_id)).etag == tied.etag
    for blocked, blocker in ((a, a), (a, b), (a, c)):
        call = desk.block(blocked.issue_id, blocker.issue_id)
        assert await fields_refused(call) == {"blocker_issue_id"}
    assert isinstance(await refused(desk.block("ABC-99", a.issue_id)), NotFound)
    await desk.rows.execute(
        "WITH made AS (INSERT INTO issues (issue_id, workspace_id, number, identifier, title,"
        " status) SELECT gen_random_uuid(), $2, 1000 + n, 'ABC-' || 1000 + n, 'x', 'todo'"
        " FROM generate_series(1, 100) n RETURNING issue_id)"
        " INSERT INTO issue_relations (issue_id, blocker_issue_id) SELECT $1, issue_id FROM made",
        UUID(a.issue_id),
        desk.world.workspace_id,
    )
    more = await desk.create("more")
    assert await fields_refused(desk.block(a.issue_id, more.issue_id)) == {"blocker_issue_id"}
    await desk.rows.execute(
        "UPDATE issue_relations SET issue_id = blocker_issue_id, blocker_issue_id = $1"
        " WHERE issue_id = $1",
        UUID(a.issue_id),
    )
    assert await fields_refused(desk.block(more.issue_id, a.issue_id)) == {"blocker_issue_id"}


async def test_two_who_tie_issues_at_once_make_no_circle(
    desk: Desk, database: TestDatabase
) -> None:
    a, b = await desk.create("a"), await desk.create("b")
    other = await database.connect("reveille_heartbeat_app")
    async with other.transaction():
        await other.execute("SELECT FROM issue_numbers FOR NO KEY UPDATE")
        ties = [
            asyncio.ensure_future(desk.block(*pair))
            for pair in ((a.issue_id, b.issue_id), (b.issue_id, a.issue_id))
        ]
        await blocked_writers(desk.rows, 2)
    results = await asyncio.gather(*ties, return_exceptions=True)
    assert sum(isinstance(each, issue_pb2.Issue) for each in results) == 1
    assert await desk.rows.fetchval("SELECT count(*) FROM issue_relations") == 1


async def test_work_goes_from_hand_to_hand_by_what_agents_leave(stage: Stage, rows: Rows) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    desk = Desk(world, rows)
    ann = await world.agent("ann", config={"summary": "see", "issue_status": "in_review"})
    bob = await world.agent("bob", config={"summary": "good", "issue_status": "done"})
    parent = await desk.create("parent", assignee_agent_id=bob.agent_id, status=BACKLOG)
    issue = await desk.create(
        parent_issue_id=parent.issue_id, reviewer_agent_id=bob.agent_id, status=BACKLOG
    )
    waits = await desk.create(blocker_issue_ids=[issue.issue_id], assignee_agent_id=bob.agent_id)
    await desk.update(parent.issue_id, status=PROGRESS)
    await desk.update(issue.issue_id, assignee_agent_id=ann.agent_id, status=TODO)

    async def done() -> list[Any]:
        return [(await desk.get(each.issue_id)).status for each in (issue, waits, parent)]

    await eventually(done, "all is done", until=lambda found: found == [DONE] * 3)
    wakes = [(each.agent_id, each.reason) for each in await desk.wakes(issue.issue_id)]
    assert wakes == [
        (ann.agent_id, "issue_assigned"),
        (bob.agent_id, "execution_review_requested"),
    ]
    assert [each.reason for each in await desk.wakes(waits.issue_id)] == [
        "issue_assigned",
        "issue_blockers_resolved",
    ]
    assert [each.reason for each in await desk.wakes(parent.issue_id)] == [
        "issue_children_completed"
    ]


async def test_a_removed_relation_lets_its_issue_go_on(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    blocker = await desk.create()
    waits = await desk.create(blocker_issue_ids=[blocker.issue_id], assignee_agent_id=ann.agent_id)
    request = issue_pb2.RemoveRelationRequest(
        issue_id=waits.issue_id, blocker_issue_id=blocker.issue_id
    )
    freed = (await desk.me.RemoveRelation(request)).issue
    assert list(freed.blocker_issue_ids) == []
    assert (await desk.me.RemoveRelation(request)).issue.etag == freed.etag
    assert (await desk.reasons(waits.issue_id))[1:] == [("issue_blockers_resolved", "queued")]


async def resolve(desk: Desk, approval_id: str, status: Any, **more: Any) -> Any:
    return await desk.me.ResolveApproval(
        approval_pb2.ResolveApprovalRequest(approval_id=approval_id, status=status, **more)
    )


async def test_a_decision_wakes_the_agent_that_asked(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    agent = desk.run(run_id)
    request = approval_pb2.RequestApprovalRequest(title="May I?", request_id="one")
    asked = (await agent.RequestApproval(request)).approval
    assert (await agent.RequestApproval(request)).approval == asked
    assert (asked.issue_id, asked.requested_by_agent_id, asked.requested_by_run_id) == (
        issue.issue_id,
        ann.agent_id,
        run_id,
    )
    await desk.end(run_id)
    wish = await resolve(
        desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_REVISION_REQUESTED, note="Cheaper."
    )
    assert (await desk.wakes(issue.issue_id))[-1] == Wake(
        ann.agent_id, "approval_revision_requested", "queued"
    )
    row = await desk.rows.fetchrow(
        "SELECT context FROM wakeup_requests WHERE wakeup_id = $1", UUID(wish.wakeup_id)
    )
    assert row is not None
    assert row["context"]["approval"]["note"] == "Cheaper."
    stale = resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_APPROVED, etag=asked.etag)
    assert isinstance(await refused(stale), Aborted)
    yes = await resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_APPROVED)
    assert yes.approval.decided_by == "olga"
    again = await resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_APPROVED)
    assert (again.approval, again.wakeup_id) == (yes.approval, "")
    no = resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_REJECTED)
    assert isinstance(await refused(no), FailedPrecondition)
    pending = resolve(desk, asked.approval_id, approval_pb2.APPROVAL_STATUS_PENDING)
    assert isinstance(await refused(pending), InvalidArgument)


async def test_of_two_decisions_at_once_one_wins(desk: Desk, database: TestDatabase) -> None:
    (ann,) = await desk.agents("ann")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    run_id = await desk.begin(issue.issue_id)
    asked = (
        await desk.run(run_id).RequestApproval(approval_pb2.RequestApprovalRequest(title="May I?"))
    ).approval
    await desk.end(run_id)
    other = await database.connect("reveille_heartbeat_app")
    async with other.transaction():
        await other.execute("SELECT FROM issues FOR NO KEY UPDATE")
        decisions = [
            asyncio.ensure_future(resolve(desk, asked.approval_id, status))
            for status in (
                approval_pb2.APPROVAL_STATUS_APPROVED,
                approval_pb2.APPROVAL_STATUS_REJECTED,
            )
        ]
        await blocked_writers(desk.rows, 2)
    results = await asyncio.gather(*decisions, return_exceptions=True)
    won = [each for each in results if isinstance(each, approval_pb2.ResolveApprovalResponse)]
    assert len(won) == 1
    assert len(await desk.wakes(issue.issue_id)) == 2
    listed = await desk.me.ListApprovals(
        approval_pb2.ListApprovalsRequest(
            workspace_id=issue.workspace_id, statuses=[won[0].approval.status], issue_id="abc-1"
        )
    )
    assert list(listed.approvals) == [won[0].approval]


async def test_people_ask_people_and_nobody_is_woken(desk: Desk) -> None:
    asked = await desk.me.RequestApproval(
        approval_pb2.RequestApprovalRequest(
            workspace_id=str(desk.world.workspace_id), title="May we?"
        )
    )
    answer = await resolve(
        desk, asked.approval.approval_id, approval_pb2.APPROVAL_STATUS_REJECTED, note="No."
    )
    assert (answer.approval.note, answer.wakeup_id) == ("No.", "")
    told = await desk.events(asked.approval.approval_id)
    assert told == ["approval.requested", "approval.resolved"]


async def test_an_agent_without_an_issue_hears_of_its_decision_too(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    result = await desk.world.wake(ann, "manual:1", task_key="deploys")
    (attempt,) = await desk.world.attempts(result.wakeup_id)
    await desk.rows.execute(
        "UPDATE runs SET state = 'running', occupied = true, started_at = clock(),"
        " lease_token = gen_random_uuid(), lease_expires_at = clock() + '1 hour'"
        " WHERE run_id = $1",
        UUID(attempt.run_id),
    )
    agent = desk.run(attempt.run_id)
    asked = await agent.RequestApproval(approval_pb2.RequestApprovalRequest(title="May I?"))
    mine = await agent.ListApprovals(approval_pb2.ListApprovalsRequest())
    assert list(mine.approvals) == [asked.approval]
    assert isinstance(await refused(desk.create(by=agent)), FailedPrecondition)
    answer = await resolve(desk, asked.approval.approval_id, approval_pb2.APPROVAL_STATUS_APPROVED)
    woken = await desk.world.wakeup(answer.wakeup_id)
    assert (woken.agent_id, woken.wake_reason) == (ann.agent_id, "approval_approved")
    row = "SELECT task_key FROM wakeup_requests WHERE wakeup_id = $1"
    assert await desk.rows.fetchval(row, UUID(answer.wakeup_id)) == "deploys"
