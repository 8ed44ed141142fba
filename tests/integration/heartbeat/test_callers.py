"""Who may see and do what: strangers learn nothing, runs touch only their own, pages add up."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from google.protobuf.json_format import MessageToDict
from tests.integration.heartbeat.conftest import Stage
from tests.integration.heartbeat.kit import MEMBER, OWNER, World, refused
from tests.integration.heartbeat.test_processes import content_of, linger, process_in

from reveille.common.v1 import reason_pb2
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceStub
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, run_pb2, wakeup_pb2
from reveille.heartbeat.v1.agent_pb2_grpc import AgentServiceStub
from reveille.heartbeat.v1.issue_pb2_grpc import IssueServiceStub
from reveille.heartbeat.v1.run_pb2_grpc import RunServiceStub
from reveille.heartbeat.v1.wakeup_pb2_grpc import WakeupServiceStub
from reveille_runtime import paging
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from reveille_runtime.rpc_errors import as_domain_errors


@pytest.fixture
async def idle(stage: Stage) -> World:
    """A workspace whose queue nobody serves."""
    service = await stage.start(engine_concurrency=0)
    world = World(service.client, stage.folder)
    await world.put()
    return world


class As:
    """Every stub in one caller's name."""

    def __init__(self, channel: Any) -> None:
        self.agents: Any = AgentServiceStub(channel)
        self.issues: Any = IssueServiceStub(channel)
        self.wakeups: Any = WakeupServiceStub(channel)
        self.runs: Any = RunServiceStub(channel)
        self.explain: Any = ExplainServiceStub(channel)


async def test_what_is_foreign_looks_unknown(idle: World) -> None:
    made = await idle.issue(await idle.agent(), "manual:1")
    (run,) = await idle.attempts(made.wakeup.wakeup_id)
    stranger = As(idle.client.user("eve", uuid4()))

    def reads(agent: str, issue: str, wakeup: str, of: str) -> list[Any]:
        return [
            stranger.agents.GetAgent(agent_pb2.GetAgentRequest(agent_id=agent)),
            stranger.issues.GetIssue(issue_pb2.GetIssueRequest(issue_id=issue)),
            stranger.issues.UpdateIssue(
                issue_pb2.UpdateIssueRequest(issue_id=issue, status=issue_pb2.ISSUE_STATUS_DONE)
            ),
            stranger.wakeups.GetWakeup(wakeup_pb2.GetWakeupRequest(wakeup_id=wakeup)),
            stranger.runs.GetRun(run_pb2.GetRunRequest(run_id=of)),
            stranger.runs.ReadRunLog(run_pb2.ReadRunLogRequest(run_id=of)),
        ]

    unknown = str(uuid4())
    foreign = reads(run.agent_id, made.issue.issue_id, made.wakeup.wakeup_id, run.run_id)
    for theirs, nobodys in zip(foreign, reads(*[unknown] * 4), strict=True):
        first, second = await refused(theirs), await refused(nobodys)
        assert (type(first), first.reason) == (NotFound, second.reason)
    space = str(idle.workspace_id)
    for call in (
        stranger.agents.ListAgents(agent_pb2.ListAgentsRequest(workspace_id=space)),
        stranger.issues.ListIssues(issue_pb2.ListIssuesRequest(workspace_id=space)),
        stranger.wakeups.ListWakeups(wakeup_pb2.ListWakeupsRequest(workspace_id=space)),
        stranger.runs.ListRuns(run_pb2.ListRunsRequest(workspace_id=space)),
        stranger.agents.CreateAgent(
            agent_pb2.CreateAgentRequest(workspace_id=space, name="x", adapter="echo")
        ),
        stranger.issues.CreateIssue(issue_pb2.CreateIssueRequest(workspace_id=space, title="x")),
    ):
        assert isinstance(await refused(call), NotFound)
    answer = await stranger.explain.Explain(explain_pb.ExplainRequest(id=made.issue.issue_id))
    assert list(answer.findings) == []


async def test_kinds_of_callers_are_kept_apart(idle: World) -> None:
    agent = await idle.agent()
    stranger = As(idle.client.user(MEMBER, UUID(int=7)))
    wish = idle.wish(agent, origin=None, source=wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND)
    request = wakeup_pb2.EnqueueWakeupsRequest(wakeups=[wish])
    assert isinstance(await refused(stranger.wakeups.EnqueueWakeups(request)), NotFound)
    scheduler = As(idle.client.channel(idle.client.keys.service("scheduler")))
    cancel = wakeup_pb2.CancelWakeupsRequest(
        cancellations=[
            wakeup_pb2.OccurrenceCancellation(
                workspace_id=str(idle.workspace_id), occurrence_key="k"
            )
        ]
    )
    assert isinstance(await refused(scheduler.wakeups.CancelWakeups(cancel)), PermissionDenied)
    create = agent_pb2.CreateAgentRequest(
        workspace_id=str(idle.workspace_id), name="x", adapter="echo"
    )
    assert isinstance(await refused(scheduler.agents.CreateAgent(create)), PermissionDenied)


async def test_a_member_wakes_by_hand_answers_for_it_and_cancels_it(idle: World) -> None:
    agent = await idle.agent()
    private = await idle.agent("private", invocation_rule=agent_pb2.INVOCATION_RULE_PRIVATE)
    await idle.issue(agent, "manual:1")
    member = As(idle.client.user(MEMBER, idle.workspace_id))
    by_hand: dict[str, Any] = {
        "origin": None,
        "source": wakeup_pb2.WAKEUP_SOURCE_ON_DEMAND,
        "reason": "on_demand",
    }
    wishes = [
        idle.wish(agent, **by_hand),
        idle.wish(agent, issue_id="abc-1", **by_hand),
        idle.wish(private, **by_hand),
    ]
    answer = await member.wakeups.EnqueueWakeups(wakeup_pb2.EnqueueWakeupsRequest(wakeups=wishes))

    free, on_issue, forbidden = answer.results
    assert forbidden.reason == reason_pb2.REASON_INVOCATION_NOT_ALLOWED
    # The occurrence of the issue has a run of its own, and is not joined.
    assert on_issue.state == wakeup_pb2.WAKEUP_STATE_DEFERRED
    stored = await idle.wakeup(free.wakeup_id)
    assert (stored.requester_kind, stored.requester_id) == ("user", MEMBER)
    assert stored.responsible_user_id == MEMBER
    filters: list[tuple[dict[str, Any], wakeup_pb2.WakeupResult]] = [
        ({"issue_id": "ABC-1", "states": [wakeup_pb2.WAKEUP_STATE_DEFERRED]}, on_issue),
        ({"reasons": [reason_pb2.REASON_INVOCATION_NOT_ALLOWED]}, forbidden),
    ]
    for only, found in filters:
        listed = await member.wakeups.ListWakeups(
            wakeup_pb2.ListWakeupsRequest(workspace_id=str(idle.workspace_id), **only)
        )
        assert [each.wakeup_id for each in listed.wakeups] == [found.wakeup_id]
    stranger = As(idle.client.user(MEMBER, UUID(int=7)))
    for each in (free, on_issue, forbidden):
        cancel = wakeup_pb2.CancelWakeupRequest(wakeup_id=each.wakeup_id)
        assert isinstance(await refused(stranger.wakeups.CancelWakeup(cancel)), NotFound)
        state = (await member.wakeups.CancelWakeup(cancel)).wakeup.state
        assert state == (
            wakeup_pb2.WAKEUP_STATE_SKIPPED
            if each is forbidden
            else wakeup_pb2.WAKEUP_STATE_CANCELLED
        )
    (run,) = await idle.attempts(free.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_CANCELLED


async def test_what_a_person_may_not_say_of_a_wake_is_refused_by_name(idle: World) -> None:
    agent = await idle.agent()
    member = As(idle.client.user(MEMBER, idle.workspace_id))
    timer = wakeup_pb2.WAKEUP_SOURCE_TIMER
    wishes = [
        idle.wish(agent, origin=None, source=wakeup_pb2.WAKEUP_SOURCE_AUTOMATION),
        idle.wish(agent, origin=None, source=timer, squad_id=agent.agent_id),
        idle.wish(agent, origin=None, agent_id="", comment_ids=[agent.agent_id]),
    ]
    call = member.wakeups.EnqueueWakeups(wakeup_pb2.EnqueueWakeupsRequest(wakeups=wishes))
    error = await refused(call)

    assert isinstance(error, InvalidArgument)
    assert {each.field for each in error.violations} == {
        "wakeups[0].source",
        "wakeups[1].source",
        "wakeups[1].agent_id",
        "wakeups[2].source",
        "wakeups[2].agent_id",
        "wakeups[2].comment_ids",
    }


async def test_a_run_moves_its_own_issue_while_it_lives_and_nothing_else(
    stage: Stage,
) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    keep = f"import os, pathlib\npathlib.Path({str(stage.folder / 'token')!r}).write_text("
    agent = await world.script(
        keep + "os.environ['REVEILLE_RUN_TOKEN'])\n" + linger(stage.folder / "pid")
    )
    mine = await world.issue(agent, "manual:1")
    await process_in(stage.folder / "pid")
    other = await world.issue(agent, "manual:2")
    (run,) = await world.attempts(mine.wakeup.wakeup_id)
    # The very token that the agent was given.
    me = As(service.client.channel(content_of(stage.folder / "token")))

    def move(issue_id: str) -> Any:
        return me.issues.UpdateIssue(
            issue_pb2.UpdateIssueRequest(issue_id=issue_id, status=issue_pb2.ISSUE_STATUS_IN_REVIEW)
        )

    assert (await me.runs.GetRun(run_pb2.GetRunRequest(run_id=run.run_id))).run.run_id == run.run_id
    assert isinstance(await refused(move(other.issue.issue_id)), NotFound)
    (its_run,) = await world.attempts(other.wakeup.wakeup_id)
    look = me.runs.GetRun(run_pb2.GetRunRequest(run_id=its_run.run_id))
    assert isinstance(await refused(look), NotFound)
    moved = await move(mine.issue.issue_id)
    assert moved.issue.status == issue_pb2.ISSUE_STATUS_IN_REVIEW

    await world.cancel("manual:1")
    await world.settled(mine.wakeup.wakeup_id)
    late = await refused(move(mine.issue.issue_id))
    assert isinstance(late, FailedPrecondition)
    assert late.message == f"run {run.run_id} has ended"
    await world.cancel("manual:2")


async def test_an_agents_name_and_settings_are_checked(idle: World) -> None:
    agent = await idle.agent(config={"summary": "hi"}, request_id="one")
    again = await idle.agent(config={"summary": "hi"}, request_id="one")
    assert again.agent_id == agent.agent_id
    with pytest.raises(InvalidArgument) as reused, as_domain_errors():
        await idle.agent("another", request_id="one")
    assert reused.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(AlreadyExists), as_domain_errors():
        await idle.agent()
    with pytest.raises(InvalidArgument) as unknown, as_domain_errors():
        await idle.agent("x", "telepathy", max_concurrent_runs=51)
    assert {each.field for each in unknown.value.violations} == {"adapter", "max_concurrent_runs"}
    with pytest.raises(InvalidArgument) as bad, as_domain_errors():
        await idle.agent("y", "echo", {"issue_status": "finished", "sumary": "x"})
    assert {each.field for each in bad.value.violations} == {
        "adapter_config.issue_status",
        "adapter_config.sumary",
    }
    for number in (math.nan, math.inf):
        with pytest.raises(InvalidArgument) as unheld, as_domain_errors():
            await idle.agent("z", "echo", {"summary": number})
        assert {each.field for each in unheld.value.violations} == {"adapter_config"}


async def test_an_agent_is_shown_without_its_secrets_and_with_its_state(stage: Stage) -> None:
    service = await stage.start()
    world = World(service.client, stage.folder)
    await world.put()
    agent = await world.script(
        linger(stage.folder / "pid"), config={"env": {"API_TOKEN": "hush-hush", "COLOUR": "blue"}}
    )
    request = agent_pb2.GetAgentRequest(agent_id=agent.agent_id)
    shown_config = MessageToDict(agent.adapter_config)
    assert shown_config["env"] == {"API_TOKEN": "********", "COLOUR": "blue"}
    assert (agent.status, agent.owner_user_id) == (agent_pb2.AGENT_STATUS_IDLE, OWNER)
    # What is shown is not the secret: elsewhere it would be taken for one.
    for name in ("API_TOKEN", "OTHER_TOKEN"):
        with pytest.raises(InvalidArgument) as masked, as_domain_errors():
            await world.agent("x", "process", {"command": ["x"], "env": {name: "********"}})
        assert {each.field for each in masked.value.violations} == {f"adapter_config.env.{name}"}

    result = await world.wake(agent, "manual:1")
    await process_in(stage.folder / "pid")
    shown = (await world.agents.GetAgent(request)).agent
    assert shown.status == agent_pb2.AGENT_STATUS_RUNNING
    await world.cancel("manual:1")
    await world.settled(result.wakeup_id)
    assert (await world.agents.GetAgent(request)).agent.status == agent_pb2.AGENT_STATUS_IDLE


async def test_an_issue_moves_by_its_table_and_by_what_its_reader_saw(idle: World) -> None:
    made = await idle.issue(await idle.agent(), "manual:1")

    def move(status: Any, etag: str = "") -> Any:
        return idle.issues.UpdateIssue(
            issue_pb2.UpdateIssueRequest(issue_id=made.issue.issue_id, status=status, etag=etag)
        )

    moved = await move(issue_pb2.ISSUE_STATUS_IN_REVIEW, made.issue.etag)
    assert moved.issue.etag != made.issue.etag
    stale = await refused(move(issue_pb2.ISSUE_STATUS_DONE, made.issue.etag))
    assert (type(stale), stale.reason) == (Aborted, "ETAG_MISMATCH")
    wrong = await refused(move(issue_pb2.ISSUE_STATUS_BACKLOG))
    assert (type(wrong), wrong.reason) == (FailedPrecondition, "WRONG_STATE")
    cancelled = await move(issue_pb2.ISSUE_STATUS_CANCELLED)
    assert cancelled.issue.status == issue_pb2.ISSUE_STATUS_CANCELLED
    wakeup = await idle.wakeup(made.wakeup.wakeup_id)
    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED


async def test_a_person_makes_an_issue_once_and_answers_for_it(idle: World) -> None:
    agent = await idle.agent()
    member = As(idle.client.user(MEMBER, idle.workspace_id))
    request = issue_pb2.CreateIssueRequest(
        workspace_id=str(idle.workspace_id),
        title="Fix it",
        assignee_agent_id=agent.agent_id,
        request_id="one",
    )
    first = await member.issues.CreateIssue(request)
    again = await member.issues.CreateIssue(request)

    assert first.issue.issue_id == again.issue.issue_id
    assert again.wakeup.existed
    assert first.issue.responsible_user_id == MEMBER
    request.origin.accountable_user_id = "somebody"
    request.request_id = "two"
    denied = await refused(member.issues.CreateIssue(request))
    assert isinstance(denied, InvalidArgument)


@pytest.mark.parametrize(("most_bytes", "count"), [(paging.MAX_BYTES, 2), (1, 1)])
async def test_lists_come_in_pages_that_add_up(
    idle: World, monkeypatch: pytest.MonkeyPatch, most_bytes: int, count: int
) -> None:
    monkeypatch.setattr(paging, "MAX_BYTES", most_bytes)
    agents = [await idle.agent(f"agent-{number}") for number in range(5)]
    for number in range(5):
        await idle.issue(agents[0], f"manual:{number}")
    space = str(idle.workspace_id)

    async def pages(call: Any, request: Any, field: str, key: str) -> list[str]:
        request.workspace_id, request.page_size = space, 2
        found: list[str] = []
        while True:
            answer = await call(request)
            assert len(getattr(answer, field)) <= count
            found += [getattr(each, key) for each in getattr(answer, field)]
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    names = await pages(idle.agents.ListAgents, agent_pb2.ListAgentsRequest(), "agents", "name")
    assert names == [each.name for each in agents]
    for call, request, field, key in (
        (idle.issues.ListIssues, issue_pb2.ListIssuesRequest(), "issues", "identifier"),
        (idle.wakeups.ListWakeups, wakeup_pb2.ListWakeupsRequest(), "wakeups", "wakeup_id"),
        (idle.runs.ListRuns, run_pb2.ListRunsRequest(), "runs", "run_id"),
    ):
        found = await pages(call, request, field, key)
        assert len(found) == len(set(found)) == 5
        if field == "issues":
            assert found == [f"ABC-{number}" for number in (5, 4, 3, 2, 1)]
    token = (
        await idle.runs.ListRuns(run_pb2.ListRunsRequest(workspace_id=space, page_size=2))
    ).next_page_token
    other = run_pb2.ListRunsRequest(
        workspace_id=space, page_token=token, agent_id=agents[0].agent_id
    )
    assert (await refused(idle.runs.ListRuns(other))).reason == "INVALID_PAGE_TOKEN"


async def test_however_long_comments_are_all_of_them_can_be_listed(
    idle: World, rows: asyncpg.Connection[asyncpg.Record]
) -> None:
    issue = (await idle.issue(await idle.agent())).issue
    await rows.execute(
        "INSERT INTO issue_comments (comment_id, issue_id, workspace_id, author_kind, author_id,"
        " body) SELECT md5(n::text)::uuid, $1, $2, 'user', 'max', repeat('x', 100000)"
        " FROM generate_series(1, 60) n",
        UUID(issue.issue_id),
        idle.workspace_id,
    )
    member = As(idle.client.user(MEMBER, idle.workspace_id))
    request = issue_pb2.ListCommentsRequest(issue_id=issue.issue_id)
    found: list[str] = []
    while not found or request.page_token:
        answer = await member.issues.ListComments(request)
        found += [each.comment_id for each in answer.comments]
        request.page_token = answer.next_page_token
    assert len(found) == len(set(found)) == 60


async def test_an_older_revision_of_a_workspace_changes_nothing(idle: World) -> None:
    await idle.put(revision=5, prefix="NEW")
    await idle.put(revision=4, prefix="OLD")

    made = await idle.issue(await idle.agent(), "manual:1")
    assert made.issue.identifier == "NEW-1"


async def test_a_list_of_an_unknown_workspace_is_refused_and_one_of_an_empty_one_is_empty(
    idle: World,
) -> None:
    keys = idle.client.keys
    for token in (keys.service("autopilot"), keys.user("root", operator=True)):
        asking = As(idle.client.channel(token))

        def lists(workspace_id: object, asking: As = asking) -> list[Any]:
            given: Any = {"workspace_id": str(workspace_id)}
            return [
                asking.agents.ListAgents(agent_pb2.ListAgentsRequest(**given)),
                asking.issues.ListIssues(issue_pb2.ListIssuesRequest(**given)),
                asking.wakeups.ListWakeups(wakeup_pb2.ListWakeupsRequest(**given)),
                asking.runs.ListRuns(run_pb2.ListRunsRequest(**given)),
            ]

        unknown = uuid4()
        for call in lists(unknown):
            error = await refused(call)
            assert isinstance(error, NotFound)
            assert error.message == f"workspace {unknown} does not exist, or is not yours"
        for call in lists(idle.workspace_id):
            assert (await call).next_page_token == ""


async def test_the_reasons_are_told_for_whatever_one_asks(idle: World) -> None:
    agent = await idle.agent()
    made = await idle.issue(agent, "manual:1")
    await idle.enqueue(idle.wish(agent, "webhook:2", agent_id=str(uuid4())))
    await idle.cancel("webhook:3")
    (run,) = await idle.attempts(made.wakeup.wakeup_id)

    async def told(what: str) -> list[explain_pb.Finding]:
        answer = await idle.explain.Explain(explain_pb.ExplainRequest(id=what))
        assert all(finding.rows and finding.text for finding in answer.findings)
        return list(answer.findings)

    for what in (run.run_id, made.wakeup.wakeup_id, made.issue.issue_id, "manual:1"):
        findings = await told(what)
        assert {"wakeup", "agent_run"} <= {each.subject for each in findings}
        assert any("waits for its turn" in each.text for each in findings)
    (skipped,) = await told("webhook:2")
    assert (skipped.state, skipped.reason) == ("skipped", "agent_not_found")
    (cancelled,) = await told("webhook:3")
    assert cancelled.state == "cancelled"
    about = await told(agent.agent_id)
    (loaded,) = [each for each in about if each.subject == "agent"]
    assert "0 of 1 slots in use and 1 runs waiting" in loaded.text
    assert loaded.command == (
        f"reveille agent-runs list --workspace {idle.workspace_id} --agent {agent.agent_id}"
    )
    assert await told(str(uuid4())) == []
