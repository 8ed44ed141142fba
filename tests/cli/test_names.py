"""Names stand for ids: looked up where the caller may see, and refused where they mean two."""

from __future__ import annotations

import pytest

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import workspace_service_pb2 as workspace
from reveille.autopilot.v1.autopilot_pb2 import Autopilot
from reveille.explain.v1 import explain_service_pb2 as pb
from reveille.heartbeat.v1 import agent_pb2, issue_pb2, project_pb2, run_pb2, squad_pb2, wakeup_pb2
from reveille_cli.apis import (
    AGENT_RUNS,
    AGENTS,
    AUTOPILOTS,
    ISSUES,
    WAKEUPS,
    WORKSPACES,
    Service,
    explain_api,
)
from reveille_runtime.errors import NotFound

from .conftest import Answer, Desk

W, OTHER, A, P, ISSUE = (f"0197f3a0-0000-7000-8000-00000000000{digit}" for digit in range(1, 6))


def workspaces(*more: workspace.Workspace, token: str = "") -> Answer:
    team = workspace.Workspace(workspace_id=W, name="Team", issue_prefix="TEAM")
    reply = workspace.ListWorkspacesResponse(workspaces=[team, *more], next_page_token=token)
    return Answer(WORKSPACES, "ListWorkspaces", reply)


def agents(*names: str, token: str = "", agent_id: str = A) -> Answer:
    found = [agent_pb2.Agent(agent_id=agent_id, name=name) for name in names]
    reply = agent_pb2.ListAgentsResponse(agents=found, next_page_token=token)
    return Answer(AGENTS, "ListAgents", reply)


def autopilots(*titles: str) -> Answer:
    found = [
        Autopilot(autopilot_id=f"{P[:-1]}{index}", title=title)
        for index, title in enumerate(titles, 4)
    ]
    return Answer(AUTOPILOTS, "ListAutopilots", autopilot.ListAutopilotsResponse(autopilots=found))


def test_an_agent_by_its_name_over_pages(desk: Desk) -> None:
    found = Answer(WAKEUPS, "ListWakeups", wakeup_pb2.ListWakeupsResponse())
    answers = [agents("a", "b", token="more"), agents("triage", "x", token="even more"), found]

    outcome = desk.run("wakeups", "list", "-w", W, "--agent", "triage", answers=answers)

    assert outcome.exit_code == 0
    assert [each.workspace_id for each in outcome.requests] == [W, W, W]
    assert outcome.requests[1].page_token == "more"
    assert outcome.requests[2].agent_id == A


def test_a_workspace_by_its_name(desk: Desk) -> None:
    found = Answer(AGENT_RUNS, "ListRuns", run_pb2.ListRunsResponse())
    line = ("agent-runs", "list", "--workspace", "Team", "--agent", "triage")

    outcome = desk.run(*line, answers=[workspaces(), agents("triage"), found])

    assert outcome.requests[1].workspace_id == W
    assert (outcome.requests[2].workspace_id, outcome.requests[2].agent_id) == (W, A)
    assert outcome.err == "No agent runs.\n"


def test_a_workspace_of_a_name_that_two_have(desk: Desk) -> None:
    twin = workspace.Workspace(workspace_id=OTHER, name="Team", issue_prefix="TWIN")

    outcome = desk.run("members", "list", "-w", "Team", "-o", "json", answers=[workspaces(twin)])

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == "workspace"
    assert W in outcome.json["error"]["message"]
    assert OTHER in outcome.json["error"]["message"]


@pytest.mark.parametrize("option", [("-w", "Team"), ()])
def test_an_autopilot_by_its_title(desk: Desk, option: tuple[str, ...]) -> None:
    done = Answer(AUTOPILOTS, "GetAutopilot", autopilot.GetAutopilotResponse())
    answers = [workspaces(), autopilots("Nightly check", "Other"), done]

    outcome = desk.run("autopilots", "get", "Nightly check", *option, answers=answers)

    assert outcome.exit_code == 0
    assert outcome.requests[1].workspace_id == W
    assert outcome.requests[2].autopilot_id == f"{P[:-1]}4"


def test_a_webhook_for_an_autopilot_by_its_title(desk: Desk) -> None:
    created = autopilot.CreateTriggerResponse(hook_url="http://x/hooks/t", endpoint_ready=True)
    line = ("triggers", "create-webhook", "Nightly", "--provider", "github", "-w", W)
    answers = [autopilots("Nightly"), Answer(AUTOPILOTS, "CreateTrigger", created)]

    outcome = desk.run(*line, answers=answers)

    assert outcome.requests[1].autopilot_id == f"{P[:-1]}4"


def test_a_title_that_two_have(desk: Desk) -> None:
    line = ("autopilots", "run", "Nightly", "-w", W, "-o", "json")

    outcome = desk.run(*line, answers=[autopilots("Nightly", "Nightly")])

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == "autopilot_id"


def test_an_unknown_name_tells_where_names_are(desk: Desk) -> None:
    line = ("autopilots", "create", "x", "-w", W, "--agent", "nobody", "--mode", "run_only")

    outcome = desk.run(*line, "--prompt", "x", answers=[agents("somebody")])

    assert outcome.exit_code == 3
    assert outcome.err.splitlines() == [
        "error: 'nobody' is neither the id nor the name of an agent that you may see (not_found)",
        "see `reveille agents list`",
    ]


def test_an_issues_identifier_is_the_services_to_know(desk: Desk) -> None:
    shown = Answer(ISSUES, "UpdateIssue", issue_pb2.UpdateIssueResponse())

    outcome = desk.run("issues", "move", "team-3", "done", answers=[shown])

    assert outcome.exit_code == 0
    assert outcome.request.issue_id == "team-3"


def test_what_cannot_name_an_issue_is_not_asked_for(desk: Desk) -> None:
    outcome = desk.run("issues", "get", "nonsense", "-o", "json")

    assert outcome.exit_code == 3
    assert outcome.json["error"]["hint"] == "see `reveille issues list`"


def test_why_of_an_identifier(desk: Desk) -> None:
    finding = pb.Finding(subject="issue", subject_id=ISSUE, state="todo", text="It waits.")
    told = [
        Answer(explain_api(service), "Explain", pb.ExplainResponse(findings=found))
        for service, found in zip(Service, [[finding], [], [], []], strict=True)
    ]
    found = issue_pb2.GetIssueResponse(issue=issue_pb2.Issue(issue_id=ISSUE))

    outcome = desk.run("why", "TEAM-3", answers=[Answer(ISSUES, "GetIssue", found), *told])

    assert outcome.exit_code == 0
    assert outcome.requests[1].id == ISSUE


def test_why_of_what_only_looks_like_one(desk: Desk) -> None:
    told = [Answer(explain_api(each), "Explain", pb.ExplainResponse()) for each in Service]

    unknown = Answer(ISSUES, "GetIssue", NotFound("NOT_FOUND", "there is none"))

    outcome = desk.run("why", "ABC-1", answers=[unknown, *told])

    assert outcome.exit_code == 3
    assert outcome.requests[1].id == "ABC-1"


@pytest.mark.parametrize("verb", ["create", "update"])
def test_an_autopilot_for_a_squad_and_a_project_by_their_names(desk: Desk, verb: str) -> None:
    squads = squad_pb2.ListSquadsResponse(squads=[squad_pb2.Squad(squad_id=A, name="crew")])
    projects = project_pb2.ListProjectsResponse(
        projects=[project_pb2.Project(project_id=OTHER, name="Beacon")]
    )
    found = [
        Answer(AGENTS, "ListSquads", squads),
        Answer(ISSUES, "ListProjects", projects),
    ]
    line: tuple[str, ...] = (P,)
    if verb == "create":
        line = ("T", "--mode", "create_issue", "--prompt", "Look.")
        done = [Answer(AUTOPILOTS, "CreateAutopilot", autopilot.CreateAutopilotResponse())]
    else:
        done = [
            Answer(AUTOPILOTS, "GetAutopilot", autopilot.GetAutopilotResponse()),
            Answer(AUTOPILOTS, "UpdateAutopilot", autopilot.UpdateAutopilotResponse()),
        ]

    outcome = desk.run(
        *("autopilots", verb, *line, "--squad", "crew", "--project", "Beacon", "-w", W),
        answers=[*found, *done],
    )

    asked = outcome.requests[-1] if verb == "create" else outcome.requests[-1].autopilot
    assert (asked.squad_id, asked.project_id) == (A, OTHER)


def test_an_autopilot_that_is_to_have_no_project(desk: Desk) -> None:
    outcome = desk.run(
        *("autopilots", "update", P, "--project", ""),
        answers=[
            Answer(AUTOPILOTS, "GetAutopilot", autopilot.GetAutopilotResponse()),
            Answer(AUTOPILOTS, "UpdateAutopilot", autopilot.UpdateAutopilotResponse()),
        ],
    )

    assert outcome.requests[-1].autopilot.project_id == ""
    assert list(outcome.requests[-1].update_mask.paths) == ["project_id"]
