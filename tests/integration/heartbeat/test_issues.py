"""Issues as people, services and runs keep them: names, edits, lists, access, deletion."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.issue_desk import Desk, Rows, fields_refused, open_desk, refused
from tests.integration.heartbeat.kit import MEMBER, OWNER, World

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import (
    agent_pb2,
    approval_pb2,
    hold_pb2,
    issue_pb2,
    project_pb2,
    run_pb2,
    squad_pb2,
    wakeup_pb2,
)
from reveille_runtime.access import Role
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
)


@pytest.fixture
async def desk(stage: Stage, rows: Rows) -> Desk:
    """A workspace whose queue nobody serves."""
    return await open_desk(stage, rows)


async def test_identifier_and_id_name_one_issue_in_every_call(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    issue = await desk.create()
    assert issue.identifier == "ABC-1"
    for name in ("abc-1", " ABC-1 ", issue.issue_id, issue.issue_id.upper()):
        assert (await desk.get(name)).issue_id == issue.issue_id
    assert (await desk.update("abc-1", title="Mend it")).title == "Mend it"
    assert (await desk.say("Abc-1")).comment.issue_id == issue.issue_id
    part = await desk.create(parent_issue_id="abc-1", blocker_issue_ids=["abc-1"])
    assert part.parent_issue_id == issue.issue_id
    assert list(part.blocker_issue_ids) == [issue.issue_id]
    # The wakes of both names are one: the second joins the first.
    first = await desk.wish(ann.agent_id, "abc-1")
    second = await desk.wish(ann.agent_id, issue.issue_id)
    assert (first.state, second.state) == (
        wakeup_pb2.WAKEUP_STATE_QUEUED,
        wakeup_pb2.WAKEUP_STATE_COALESCED,
    )
    listed = run_pb2.ListRunsRequest(workspace_id=issue.workspace_id, issue_id="abc-1")
    assert [each.issue_id for each in (await desk.world.runs.ListRuns(listed)).runs] == [
        issue.issue_id
    ]
    gone = await desk.wish(ann.agent_id, "ABC-99")
    assert gone.reason == reason_pb2.REASON_ISSUE_NOT_FOUND
    assert isinstance(await refused(desk.get("ABC-99")), NotFound)
    assert await fields_refused(desk.get("nonsense")) == {"issue_id"}


async def test_an_identifier_of_two_workspaces_has_to_be_told_apart(desk: Desk) -> None:
    mine = await desk.create()
    other = World(desk.world.client, desk.world.folder)
    await other.put()
    there = await Desk(other, desk.rows).create()
    services = desk.world.issues
    assert there.identifier == mine.identifier

    assert (await desk.get("abc-1")).issue_id == mine.issue_id
    assert await fields_refused(desk.get("abc-1", by=services)) == {"issue_id"}
    found = await desk.get("abc-1", by=services, workspace_id=there.workspace_id)
    assert found.issue_id == there.issue_id


async def test_only_what_is_named_changes_and_what_is_empty_is_cleared(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    project = await desk.me.CreateProject(
        project_pb2.CreateProjectRequest(workspace_id=str(desk.world.workspace_id), name="Alpha")
    )
    issue = await desk.create(
        description="It is broken.",
        status=issue_pb2.ISSUE_STATUS_BACKLOG,
        priority=issue_pb2.ISSUE_PRIORITY_HIGH,
        assignee_agent_id=ann.agent_id,
        reviewer_user_id="rita",
        project_id=project.project.project_id,
        subscriber_user_ids=["zoe", "ann", "zoe"],
        responsible_user_id="rita",
    )
    assert list(issue.subscriber_user_ids) == ["ann", "zoe"]
    assert issue.origin_kind == "manual"
    changed = await desk.update(
        issue.issue_id,
        etag=issue.etag,
        title="Mend it",
        project_id="",
        priority=issue_pb2.ISSUE_PRIORITY_UNSPECIFIED,
        reviewer_agent_id=bob.agent_id,
        subscriber_user_ids=["max"],
    )
    assert (changed.title, changed.project_id, changed.priority) == ("Mend it", "", 0)
    # Judged by one: the person's place is taken.
    assert (changed.reviewer_agent_id, changed.reviewer_user_id) == (bob.agent_id, "")
    assert list(changed.subscriber_user_ids) == ["max"]
    kept = (changed.description, changed.assignee_agent_id, changed.responsible_user_id)
    assert kept == ("It is broken.", ann.agent_id, "rita")
    stale = await refused(desk.update(issue.issue_id, etag=issue.etag, title="Late"))
    assert (type(stale), stale.reason) == (Aborted, "ETAG_MISMATCH")
    same = await desk.update(issue.issue_id, title="Mend it")
    assert same.etag == changed.etag
    assert await desk.events(issue.issue_id) == ["issue.created", "issue.updated"]


async def test_bad_input_is_refused_by_the_names_of_its_fields(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    issue = await desk.create()
    part = await desk.create(parent_issue_id=issue.issue_id)
    stranger = Desk(World(desk.world.client, desk.world.folder), desk.rows)
    await stranger.world.put(prefix="XYZ")
    theirs = await stranger.create()
    foreign = await stranger.world.agent("eve")

    async def bad(**fields: Any) -> set[str]:
        return await fields_refused(desk.update(issue.issue_id, **fields))

    assert await bad(title="") == {"title"}
    assert await bad(assignee_agent_id="x") == {"assignee_agent_id"}
    assert await bad(assignee_agent_id=foreign.agent_id) == {"assignee_agent_id"}
    assert await bad(reviewer_agent_id=str(uuid4())) == {"reviewer_agent_id"}
    assert await bad(project_id=str(uuid4())) == {"project_id"}
    assert await bad(parent_issue_id=part.issue_id) == {"parent_issue_id"}
    assert await bad(parent_issue_id=issue.issue_id) == {"parent_issue_id"}
    assert await bad(parent_issue_id=theirs.issue_id) == {"parent_issue_id"}
    assert await bad(subscriber_user_ids=["x"] * 101) == {"subscriber_user_ids"}
    assert await bad(assignee_agent_id=ann.agent_id, assignee_user_id="x") == {"assignee_user_id"}
    request = issue_pb2.UpdateIssueRequest(
        issue_id=issue.issue_id, update_mask=FieldMask(paths=["identifier"])
    )
    assert await fields_refused(desk.me.UpdateIssue(request)) == {"update_mask"}
    refusal = await fields_refused(
        desk.create("", status=issue_pb2.ISSUE_STATUS_DONE, assignee_squad_id="y")
    )
    assert refusal == {"title", "status", "assignee_squad_id"}
    assert await fields_refused(desk.create(blocker_issue_ids=[theirs.issue_id])) == {
        "blocker_issue_ids"
    }
    assert await desk.get(issue.issue_id) == issue


async def test_an_agent_that_is_not_theirs_to_wake_is_nobodys_to_assign(desk: Desk) -> None:
    private = await desk.world.agent("own", invocation_rule=agent_pb2.INVOCATION_RULE_PRIVATE)
    issue = await desk.create()
    max_ = desk.user(MEMBER)
    for call in (
        desk.update(issue.issue_id, by=max_, assignee_agent_id=private.agent_id),
        desk.create(by=max_, assignee_agent_id=private.agent_id),
        desk.say(issue.issue_id, by=max_, mentioned_agent_ids=[private.agent_id]),
    ):
        assert isinstance(await refused(call), PermissionDenied)
    assert await desk.wakes(issue.issue_id) == []
    given = await desk.update(issue.issue_id, assignee_agent_id=private.agent_id)
    assert given.assignee_agent_id == private.agent_id


async def test_lists_are_filtered_and_paged(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    top = await desk.create("top")
    first = await desk.create("first", parent_issue_id=top.issue_id, assignee_agent_id=ann.agent_id)
    second = await desk.create("second", parent_issue_id=top.issue_id, assignee_user_id="max")

    async def listed(**more: Any) -> list[str]:
        names: list[str] = []
        token = ""
        while True:
            page = await desk.me.ListIssues(
                issue_pb2.ListIssuesRequest(
                    workspace_id=top.workspace_id, page_size=1, page_token=token, **more
                )
            )
            names += [each.title for each in page.issues]
            token = page.next_page_token
            if not token:
                return names

    assert await listed() == ["second", "first", "top"]
    assert await listed(parent_issue_id="abc-1") == ["second", "first"]
    assert await listed(assignee_agent_id=ann.agent_id) == ["first"]
    assert await listed(assignee_user_id="max") == ["second"]
    assert await listed(statuses=[issue_pb2.ISSUE_STATUS_DONE]) == []
    await desk.me.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=second.issue_id))
    assert await listed() == ["first", "top"]
    page = await desk.me.ListIssues(
        issue_pb2.ListIssuesRequest(workspace_id=top.workspace_id, page_size=1)
    )
    wrong = issue_pb2.ListIssuesRequest(
        workspace_id=top.workspace_id,
        page_token=page.next_page_token,
        parent_issue_id=first.parent_issue_id,
    )
    assert await fields_refused(desk.me.ListIssues(wrong)) == {"page_token"}


async def test_a_run_writes_about_its_issue_and_what_is_below_while_it_lives(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    above = await desk.create("above")
    mine = await desk.create("mine", parent_issue_id="abc-1", assignee_agent_id=ann.agent_id)
    other = await desk.create("other", assignee_agent_id=bob.agent_id)
    run_id = await desk.begin(mine.issue_id)
    agent = desk.run(run_id)

    part = await desk.create("part", by=agent, assignee_agent_id=bob.agent_id, request_id="one")
    again = await desk.create("part", by=agent, assignee_agent_id=bob.agent_id, request_id="one")
    assert again == part
    assert (part.parent_issue_id, part.origin_kind, part.origin_id) == (
        mine.issue_id,
        "agent",
        run_id,
    )
    assert part.responsible_user_id == mine.responsible_user_id == OWNER
    below = await desk.create("below", by=agent, parent_issue_id=part.identifier)
    assert below.parent_issue_id == part.issue_id
    said = await desk.say(below.issue_id, by=agent)
    assert said.comment.author_kind == issue_pb2.COMMENT_AUTHOR_KIND_AGENT
    assert (said.comment.author_id, said.comment.run_id) == (ann.agent_id, run_id)
    assert (await desk.get(above.issue_id, by=agent)).title == "above"
    assert await desk.rows.fetchval("SELECT left_progress FROM runs WHERE run_id = $1", run_id)

    for call in (
        desk.get(other.issue_id, by=agent),
        desk.update(other.issue_id, by=agent, title="x"),
        desk.update(above.issue_id, by=agent, title="x"),
        desk.say(above.issue_id, by=agent),
        desk.create("x", by=agent, parent_issue_id=other.issue_id),
    ):
        assert isinstance(await refused(call), NotFound)
    for people in ({"responsible_user_id": "x"}, {"parent_issue_id": ""}):
        call = desk.update(mine.issue_id, by=agent, **people)
        assert isinstance(await refused(call), PermissionDenied)
    # Nor does it put its parts on somebody else.
    call = desk.create("part", by=agent, responsible_user_id="mallory")
    assert isinstance(await refused(call), PermissionDenied)

    await desk.end(run_id)
    for call in (
        desk.update(mine.issue_id, by=agent, title="x"),
        desk.say(mine.issue_id, by=agent),
        desk.create("x", by=agent),
        agent.RequestApproval(approval_pb2.RequestApprovalRequest(title="May I?")),
    ):
        assert isinstance(await refused(call), FailedPrecondition)


async def test_a_squads_leader_gets_its_issue(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    made = await desk.world.agents.CreateSquad(
        squad_pb2.CreateSquadRequest(
            workspace_id=str(desk.world.workspace_id), name="A", leader_agent_id=ann.agent_id
        )
    )
    issue = await desk.create(assignee_squad_id=made.squad.squad_id)
    assert issue.assignee_agent_id == ann.agent_id
    assert await desk.reasons(issue.issue_id) == [("issue_assigned", "queued")]


async def test_what_is_deleted_is_there_for_nobody(desk: Desk) -> None:
    ann, bob = await desk.agents("ann", "bob")
    issue = await desk.create("gone", assignee_agent_id=ann.agent_id)
    waits = await desk.create(
        "waits", blocker_issue_ids=[issue.issue_id], assignee_agent_id=bob.agent_id
    )
    part = await desk.create("part", parent_issue_id=issue.issue_id)
    await desk.me.RequestApproval(
        approval_pb2.RequestApprovalRequest(
            workspace_id=issue.workspace_id, issue_id=issue.issue_id, title="May I?"
        )
    )
    assert await desk.reasons(waits.issue_id) == [("issue_assigned", "skipped")]
    await desk.begin(issue.issue_id)
    stale = issue_pb2.DeleteIssueRequest(issue_id=issue.issue_id, etag="0")
    assert isinstance(await refused(desk.me.DeleteIssue(stale)), Aborted)
    await desk.me.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=issue.issue_id))

    run = await desk.rows.fetchrow(
        "SELECT state, reason FROM runs WHERE issue_id = $1", issue.issue_id
    )
    assert run is not None
    assert (run["state"], run["reason"]) == ("cancelled", "issue_deleted")
    again = issue_pb2.DeleteIssueRequest(issue_id=issue.issue_id)
    relation = issue_pb2.AddRelationRequest(issue_id=part.issue_id, blocker_issue_id=issue.issue_id)
    for call in (
        desk.get(issue.issue_id),
        desk.get(issue.identifier),
        desk.update(issue.issue_id, title="x"),
        desk.say(issue.issue_id),
        desk.me.ListComments(issue_pb2.ListCommentsRequest(issue_id=issue.issue_id)),
        desk.me.DeleteIssue(again),
    ):
        assert isinstance(await refused(call), NotFound)
    assert await fields_refused(desk.me.AddRelation(relation)) == {"blocker_issue_id"}
    asked = await desk.me.ListApprovals(
        approval_pb2.ListApprovalsRequest(workspace_id=issue.workspace_id)
    )
    assert list(asked.approvals) == []
    wish = await desk.wish(ann.agent_id, issue.issue_id)
    assert wish.reason == reason_pb2.REASON_ISSUE_NOT_FOUND
    # What it blocked goes on, and its parts stay.
    assert await desk.reasons(waits.issue_id) == [
        ("issue_assigned", "skipped"),
        ("issue_blockers_resolved", "queued"),
    ]
    assert list((await desk.get(waits.issue_id)).blocker_issue_ids) == []
    assert (await desk.get(part.issue_id)).title == "part"
    assert "issue.deleted" in await desk.events(issue.issue_id)
    assert (await desk.create("next")).identifier == "ABC-4"


async def test_projects_are_kept_by_name_and_archived(desk: Desk) -> None:
    space = str(desk.world.workspace_id)
    request = project_pb2.CreateProjectRequest(workspace_id=space, name="Alpha", request_id="one")
    alpha = (await desk.me.CreateProject(request)).project
    assert (await desk.me.CreateProject(request)).project == alpha
    taken = project_pb2.CreateProjectRequest(workspace_id=space, name="Alpha")
    assert isinstance(await refused(desk.me.CreateProject(taken)), AlreadyExists)
    beta = await desk.me.CreateProject(
        project_pb2.CreateProjectRequest(workspace_id=space, name="Beta", description="B")
    )

    async def change(etag: str = "", **fields: object) -> project_pb2.Project:
        wanted = project_pb2.Project(
            project_id=beta.project.project_id,
            etag=etag,
            **fields,  # type: ignore[arg-type]  # by name
        )
        answer = await desk.me.UpdateProject(
            project_pb2.UpdateProjectRequest(
                project=wanted, update_mask=FieldMask(paths=list(fields))
            )
        )
        project: project_pb2.Project = answer.project
        return project

    assert isinstance(await refused(change(name="Alpha")), AlreadyExists)
    assert await fields_refused(change(name="")) == {"project.name"}
    assert await fields_refused(change()) == {"update_mask"}
    gamma = await change(beta.project.etag, name="Gamma", description="")
    assert (gamma.name, gamma.description) == ("Gamma", "")
    assert isinstance(await refused(change(beta.project.etag, name="Delta")), Aborted)
    archived = await change(state=project_pb2.PROJECT_STATE_ARCHIVED)
    assert archived.state == project_pb2.PROJECT_STATE_ARCHIVED
    assert await fields_refused(desk.create(project_id=gamma.project_id)) == {"project_id"}
    page = await desk.me.ListProjects(
        project_pb2.ListProjectsRequest(workspace_id=space, page_size=1)
    )
    rest = await desk.me.ListProjects(
        project_pb2.ListProjectsRequest(workspace_id=space, page_token=page.next_page_token)
    )
    assert [each.name for each in (*page.projects, *rest.projects)] == ["Alpha", "Gamma"]
    stranger = Desk(World(desk.world.client, desk.world.folder), desk.rows).user("eve", Role.OWNER)
    look = project_pb2.GetProjectRequest(project_id=alpha.project_id)
    assert isinstance(await refused(stranger.GetProject(look)), NotFound)


async def test_what_is_foreign_looks_unknown_to_every_call(desk: Desk) -> None:
    issue = await desk.create()
    asked = await desk.me.RequestApproval(
        approval_pb2.RequestApprovalRequest(workspace_id=issue.workspace_id, title="May I?")
    )
    eve = Desk(World(desk.world.client, desk.world.folder), desk.rows).user("eve", Role.OWNER)

    def calls(name: str, approval: str) -> list[Any]:
        return [
            eve.GetIssue(issue_pb2.GetIssueRequest(issue_id=name)),
            eve.UpdateIssue(
                issue_pb2.UpdateIssueRequest(
                    issue_id=name, title="x", update_mask=FieldMask(paths=["title"])
                )
            ),
            eve.UpdateIssue(
                issue_pb2.UpdateIssueRequest(
                    issue_id=name, update_mask=FieldMask(paths=["parent_issue_id"])
                )
            ),
            eve.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=name)),
            eve.AddComment(issue_pb2.AddCommentRequest(issue_id=name, body="x")),
            eve.ListComments(issue_pb2.ListCommentsRequest(issue_id=name)),
            eve.CheckoutIssue(issue_pb2.CheckoutIssueRequest(issue_id=name, run_id=str(uuid4()))),
            eve.ReleaseIssue(issue_pb2.ReleaseIssueRequest(issue_id=name, force=True)),
            eve.AddRelation(
                issue_pb2.AddRelationRequest(issue_id=name, blocker_issue_id=str(uuid4()))
            ),
            eve.RemoveRelation(
                issue_pb2.RemoveRelationRequest(issue_id=name, blocker_issue_id=str(uuid4()))
            ),
            eve.HoldIssueTree(hold_pb2.HoldIssueTreeRequest(root_issue_id=name)),
            eve.ReleaseIssueTree(hold_pb2.ReleaseIssueTreeRequest(root_issue_id=name)),
            eve.ResolveApproval(
                approval_pb2.ResolveApprovalRequest(
                    approval_id=approval, status=approval_pb2.APPROVAL_STATUS_APPROVED
                )
            ),
        ]

    foreign = calls(issue.issue_id, asked.approval.approval_id)
    for theirs, nobodys in zip(foreign, calls(*[str(uuid4())] * 2), strict=True):
        first, second = await refused(theirs), await refused(nobodys)
        assert (type(first), first.reason) == (NotFound, second.reason)
    space = issue.workspace_id
    for call in (
        eve.GetIssue(issue_pb2.GetIssueRequest(issue_id="ABC-1")),
        eve.GetIssue(issue_pb2.GetIssueRequest(issue_id="ABC-1", workspace_id=space)),
        eve.ListIssues(issue_pb2.ListIssuesRequest(workspace_id=space)),
        eve.ListApprovals(approval_pb2.ListApprovalsRequest(workspace_id=space)),
        eve.ListProjects(project_pb2.ListProjectsRequest(workspace_id=space)),
        eve.RequestApproval(approval_pb2.RequestApprovalRequest(workspace_id=space, title="x")),
        eve.CreateProject(project_pb2.CreateProjectRequest(workspace_id=space, name="x")),
        eve.CreateIssue(issue_pb2.CreateIssueRequest(workspace_id=space, title="x")),
    ):
        assert isinstance(await refused(call), NotFound)
    assert await desk.get(issue.issue_id) == issue


async def test_a_run_neither_deletes_nor_holds_nor_decides(desk: Desk) -> None:
    (ann,) = await desk.agents("ann")
    issue = await desk.create(assignee_agent_id=ann.agent_id)
    agent = desk.run(await desk.begin(issue.issue_id))
    for call in (
        agent.DeleteIssue(issue_pb2.DeleteIssueRequest(issue_id=issue.issue_id)),
        agent.HoldIssueTree(hold_pb2.HoldIssueTreeRequest(root_issue_id=issue.issue_id)),
        agent.ResolveApproval(approval_pb2.ResolveApprovalRequest(approval_id=str(uuid4()))),
        agent.CreateProject(project_pb2.CreateProjectRequest(name="x")),
    ):
        assert isinstance(await refused(call), PermissionDenied)
