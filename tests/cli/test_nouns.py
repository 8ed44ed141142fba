"""Every verb: the request it makes of the command line, and what it prints of the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from reveille_cli.apis import (
    AGENT_RUNS,
    AGENTS,
    AUTOPILOTS,
    DELIVERIES,
    ISSUES,
    SCHEDULER,
    WAKEUPS,
    WORKSPACES,
    Api,
)

from .conftest import TOKEN, Answer, Desk

NOON = "2026-11-29T12:00:00Z"
# Ids of what also has a name: a workspace, an agent, an autopilot, an issue.
W1, A1, P1, I1 = (f"0197f3a0-0000-7000-8000-00000000000{digit}" for digit in range(1, 5))


@dataclass(frozen=True)
class Case:
    """A command line and the request that it stands for."""

    words: str | list[str]
    api: Api
    rpc: str
    request: dict[str, Any]

    @property
    def line(self) -> list[str]:
        return self.words.split() if isinstance(self.words, str) else self.words


CASES = [
    Case(
        "workspaces create Acme --issue-prefix ACM --owner ann --fail-closed --request-id r1",
        WORKSPACES,
        "CreateWorkspace",
        {
            "name": "Acme",
            "issue_prefix": "ACM",
            "owner_user_id": "ann",
            "attribution_fail_closed": True,
            "request_id": "r1",
        },
    ),
    Case(f"workspaces get {W1}", WORKSPACES, "GetWorkspace", {"workspace_id": W1}),
    Case(
        f"workspaces update {W1} --status archived --etag w1",
        WORKSPACES,
        "UpdateWorkspace",
        {
            "workspace": {
                "workspace_id": W1,
                "status": "WORKSPACE_STATUS_ARCHIVED",
                "etag": "w1",
            },
            "update_mask": "status",
        },
    ),
    Case(
        f"members add bob --role admin -w {W1}",
        WORKSPACES,
        "AddMember",
        {"user_id": "bob", "role": "ROLE_ADMIN", "workspace_id": W1},
    ),
    Case(
        [
            *[
                "agents",
                "create",
                "triage",
                "-w",
                W1,
                "--adapter",
                "process",
                "--cwd",
                "/srv",
                "--env",
                "A=1",
                "--env",
                "B=",
            ],
            *("--command", "python3 'my agent.py'", "--run-timeout", "1h30m"),
            *("--idle-timeout", "0", "--max-concurrent-runs", "2", "--invocation", "members"),
            *("--invocation-user", "ann", "--invocation-user", "bob"),
        ],
        AGENTS,
        "CreateAgent",
        {
            "workspace_id": W1,
            "name": "triage",
            "adapter": "process",
            "adapter_config": {
                "command": ["python3", "my agent.py"],
                "cwd": "/srv",
                "env": {"A": "1", "B": ""},
            },
            "run_timeout": "5400s",
            "idle_timeout": "0s",
            "max_concurrent_runs": 2,
            "invocation_rule": "INVOCATION_RULE_MEMBERS",
            "invocation_user_ids": ["ann", "bob"],
        },
    ),
    Case(
        [
            *("agents", "create", "night", "-w", W1, "--adapter", "echo", "--timer", "true"),
            *("--timer-interval", "15m", "--timer-needs-work", "true", "--max-daily-runs", "20"),
            *("--cooldown", "5m", "--start-limit", "2h", "--manager", A1, "--runtime", I1),
        ],
        AGENTS,
        "CreateAgent",
        {
            "workspace_id": W1,
            "name": "night",
            "adapter": "echo",
            "heartbeat": {
                "timer_enabled": True,
                "timer_interval": "900s",
                "skip_timer_without_work": True,
                "max_daily_runs": 20,
                "cooldown": "300s",
            },
            "start_limit": "7200s",
            "manager_agent_id": A1,
            "runtime_id": I1,
        },
    ),
    Case(
        [
            *("agents", "update", A1, "--etag", "3", "--max-concurrent-runs", "0"),
            *("--timer", "true", "--timer-interval", "15m", "--wake-on-demand", "false"),
            *("--max-daily-runs", "none", "--max-daily-cost", "0", "--manager", ""),
            *("--runtime", "", "--max-turn-continuations", "0"),
        ],
        AGENTS,
        "UpdateAgent",
        {
            "agent": {
                "agent_id": A1,
                "etag": "3",
                "heartbeat": {
                    "timer_enabled": True,
                    "timer_interval": "900s",
                    "wake_on_demand": False,
                    "max_daily_cost_cents": 0,
                    "max_turn_continuations": 0,
                },
            },
            "update_mask": ",".join(
                [
                    "maxConcurrentRuns",
                    "managerAgentId",
                    "runtimeId",
                    "heartbeat.timerEnabled",
                    "heartbeat.timerInterval",
                    "heartbeat.wakeOnDemand",
                    "heartbeat.maxDailyRuns",
                    "heartbeat.maxDailyCostCents",
                    "heartbeat.maxTurnContinuations",
                ]
            ),
        },
    ),
    Case(
        f"agents pause {A1} --reason holidays --etag 2",
        AGENTS,
        "PauseAgent",
        {"agent_id": A1, "reason": "holidays", "etag": "2"},
    ),
    Case(f"agents resume {A1}", AGENTS, "ResumeAgent", {"agent_id": A1}),
    Case(f"agents archive {A1}", AGENTS, "ArchiveAgent", {"agent_id": A1}),
    Case(
        f"squads create night -w {W1} --leader {A1} --member {P1} --member {I1} --request-id r1",
        AGENTS,
        "CreateSquad",
        {
            "workspace_id": W1,
            "name": "night",
            "leader_agent_id": A1,
            "member_agent_ids": [P1, I1],
            "request_id": "r1",
        },
    ),
    Case(
        f"squads update {I1} --name late --leader {A1} --etag 2",
        AGENTS,
        "UpdateSquad",
        {
            "squad": {"squad_id": I1, "name": "late", "leader_agent_id": A1, "etag": "2"},
            "update_mask": "name,leaderAgentId",
        },
    ),
    Case(f"squads get {I1}", AGENTS, "GetSquad", {"squad_id": I1}),
    Case(
        f"squads pause {I1} --reason holidays",
        AGENTS,
        "PauseSquad",
        {"squad_id": I1, "reason": "holidays"},
    ),
    Case(f"squads resume {I1}", AGENTS, "ResumeSquad", {"squad_id": I1}),
    Case(f"squads archive {I1}", AGENTS, "ArchiveSquad", {"squad_id": I1}),
    Case(
        ["runtimes", "register", "far", "-w", W1, "--metadata", '{"cpu": 4}'],
        AGENTS,
        "RegisterRuntime",
        {"workspace_id": W1, "name": "far", "metadata": {"cpu": 4}},
    ),
    Case(
        ["runtimes", "report", I1, "--presence", "90s", "--unusable", "no program"],
        AGENTS,
        "ReportRuntime",
        {"runtime_id": I1, "presence": "90s", "unusable_reason": "no program"},
    ),
    Case(f"runtimes delete {I1}", AGENTS, "DeleteRuntime", {"runtime_id": I1}),
    Case(
        [
            "agents",
            "create",
            "echo",
            "-w",
            W1,
            "--adapter",
            "echo",
            "--adapter-config",
            '{"a": 1}',
        ],
        AGENTS,
        "CreateAgent",
        {"workspace_id": W1, "name": "echo", "adapter": "echo", "adapter_config": {"a": 1}},
    ),
    Case(f"agents get {A1}", AGENTS, "GetAgent", {"agent_id": A1}),
    Case(
        f"autopilots create Triage -w {W1} --agent {A1} --mode create_issue --prompt look"
        " --issue-title T{{date}}",
        AUTOPILOTS,
        "CreateAutopilot",
        {
            "workspace_id": W1,
            "title": "Triage",
            "agent_id": A1,
            "execution_mode": "EXECUTION_MODE_CREATE_ISSUE",
            "prompt": "look",
            "issue_title_template": "T{{date}}",
        },
    ),
    Case(f"autopilots get {P1}", AUTOPILOTS, "GetAutopilot", {"autopilot_id": P1}),
    Case(
        f"autopilots pause {P1} --etag e1",
        AUTOPILOTS,
        "PauseAutopilot",
        {"autopilot_id": P1, "etag": "e1"},
    ),
    Case(f"autopilots resume {P1}", AUTOPILOTS, "ResumeAutopilot", {"autopilot_id": P1}),
    Case(
        f"autopilots run {P1} --trigger t1 --payload {{}} --content-type application/json",
        AUTOPILOTS,
        "RunAutopilot",
        {
            "autopilot_id": P1,
            "trigger_id": "t1",
            "payload": "e30=",
            "content_type": "application/json",
        },
    ),
    Case(
        ["triggers", "create-schedule", P1, "0 9 * * *", "--tz", "Europe/Berlin", "--disabled"],
        AUTOPILOTS,
        "CreateTrigger",
        {
            "autopilot_id": P1,
            "schedule": {"cron": "0 9 * * *", "time_zone": "Europe/Berlin"},
            "disabled": True,
        },
    ),
    Case(
        f"triggers create-webhook {P1} --provider github --event issues:opened,closed --event push"
        " --label hub --max-body-bytes 1000",
        AUTOPILOTS,
        "CreateTrigger",
        {
            "autopilot_id": P1,
            "label": "hub",
            "webhook": {
                "provider": "github",
                "max_body_bytes": 1000,
                "event_filters": [
                    {"event": "issues", "actions": ["opened", "closed"]},
                    {"event": "push"},
                ],
            },
        },
    ),
    Case("triggers get t1", AUTOPILOTS, "GetTrigger", {"trigger_id": "t1"}),
    Case("triggers delete t1", AUTOPILOTS, "DeleteTrigger", {"trigger_id": "t1"}),
    Case(
        "triggers rotate-token t1 --grace 1h",
        AUTOPILOTS,
        "RotateWebhookToken",
        {"trigger_id": "t1", "grace": "3600s"},
    ),
    Case(
        "triggers secrets remove t1 s1",
        AUTOPILOTS,
        "RemoveSigningSecret",
        {"trigger_id": "t1", "secret_id": "s1"},
    ),
    Case("triggers secrets list t1", AUTOPILOTS, "ListSigningSecrets", {"trigger_id": "t1"}),
    Case("runs get r1", AUTOPILOTS, "GetRun", {"run_id": "r1"}),
    Case("runs cancel r1", AUTOPILOTS, "CancelRun", {"run_id": "r1"}),
    Case("agent-runs get r1", AGENT_RUNS, "GetRun", {"run_id": "r1"}),
    Case("agent-runs cancel r1", AGENT_RUNS, "CancelRun", {"run_id": "r1"}),
    Case(
        "agent-runs retry r1 --request-id q1",
        AGENT_RUNS,
        "RetryRun",
        {"run_id": "r1", "request_id": "q1"},
    ),
    Case("deliveries get d1", DELIVERIES, "GetDelivery", {"delivery_id": "d1"}),
    Case("wakeups get w1", WAKEUPS, "GetWakeup", {"wakeup_id": "w1"}),
    Case("wakeups cancel w1", WAKEUPS, "CancelWakeup", {"wakeup_id": "w1"}),
    Case(
        f"issues create Fix -w {W1} --description now --agent {A1} --priority high",
        ISSUES,
        "CreateIssue",
        {
            "title": "Fix",
            "workspace_id": W1,
            "description": "now",
            "assignee_agent_id": A1,
            "priority": "ISSUE_PRIORITY_HIGH",
        },
    ),
    Case(f"issues get {I1}", ISSUES, "GetIssue", {"issue_id": I1}),
    Case(
        f"issues move {I1} done --etag e1",
        ISSUES,
        "UpdateIssue",
        {"issue_id": I1, "status": "ISSUE_STATUS_DONE", "etag": "e1"},
    ),
    Case(
        f"scopes preview j autopilot_trigger t1 --after {NOON} --count 3",
        SCHEDULER,
        "PreviewSchedule",
        {
            "job_name": "j",
            "kind": "autopilot_trigger",
            "scope_id": "t1",
            "after": NOON,
            "count": 3,
        },
    ),
    Case("executions get x1", SCHEDULER, "GetExecution", {"execution_id": "x1"}),
    Case(
        "executions retry x1 --request-id r1",
        SCHEDULER,
        "RetryExecution",
        {"execution_id": "x1", "request_id": "r1"},
    ),
    Case("jobs get j", SCHEDULER, "GetJob", {"name": "j"}),
    Case("jobs pause j --note why", SCHEDULER, "PauseJob", {"name": "j", "note": "why"}),
    Case("jobs resume j", SCHEDULER, "ResumeJob", {"name": "j"}),
    Case(
        f"scopes backfill j autopilot_trigger t1 --from {NOON} --to {NOON}",
        SCHEDULER,
        "BackfillScope",
        {
            "job_name": "j",
            "kind": "autopilot_trigger",
            "scope_id": "t1",
            "start_time": NOON,
            "end_time": NOON,
        },
    ),
]
LISTS = [
    Case("jobs list", SCHEDULER, "ListJobs", {}),
    Case("scopes list j", SCHEDULER, "ListScopes", {"job_name": "j"}),
    Case("workspaces list", WORKSPACES, "ListWorkspaces", {}),
    Case(f"members list -w {W1}", WORKSPACES, "ListMembers", {"workspace_id": W1}),
    Case(f"agents list -w {W1}", AGENTS, "ListAgents", {"workspace_id": W1}),
    Case(f"squads list -w {W1}", AGENTS, "ListSquads", {"workspace_id": W1}),
    Case(f"runtimes list -w {W1}", AGENTS, "ListRuntimes", {"workspace_id": W1}),
    Case(f"autopilots list -w {W1}", AUTOPILOTS, "ListAutopilots", {"workspace_id": W1}),
    Case(f"triggers list {P1}", AUTOPILOTS, "ListTriggers", {"autopilot_id": P1}),
    Case(
        f"runs list -w {W1} --autopilot {P1} --trigger t1 --state running --state issue_created",
        AUTOPILOTS,
        "ListRuns",
        {
            "workspace_id": W1,
            "autopilot_id": P1,
            "trigger_id": "t1",
            "states": ["RUN_STATE_RUNNING", "RUN_STATE_ISSUE_CREATED"],
        },
    ),
    Case(
        f"agent-runs list -w {W1} --agent {A1} --wakeup u1 --issue {I1} --state timed_out",
        AGENT_RUNS,
        "ListRuns",
        {
            "workspace_id": W1,
            "agent_id": A1,
            "wakeup_id": "u1",
            "issue_id": I1,
            "states": ["RUN_STATE_TIMED_OUT"],
        },
    ),
    Case(
        f"deliveries list -w {W1} --trigger t1 --state ignored",
        DELIVERIES,
        "ListDeliveries",
        {"workspace_id": W1, "endpoint_id": "t1", "states": ["DELIVERY_STATE_IGNORED"]},
    ),
    Case(
        f"wakeups list -w {W1} --agent {A1} --state skipped --issue ABC-1 --reason cooldown",
        WAKEUPS,
        "ListWakeups",
        {
            "workspace_id": W1,
            "agent_id": A1,
            "states": ["WAKEUP_STATE_SKIPPED"],
            "issue_id": "ABC-1",
            "reasons": ["REASON_COOLDOWN"],
        },
    ),
    Case(
        f"issues list -w {W1} --status todo --agent {A1}",
        ISSUES,
        "ListIssues",
        {"workspace_id": W1, "statuses": ["ISSUE_STATUS_TODO"], "assignee_agent_id": A1},
    ),
    Case(
        f"executions list --job j --scope s --state failed --from {NOON} --before {NOON}",
        SCHEDULER,
        "ListExecutions",
        {
            "job_name": "j",
            "scope_id": "s",
            "states": ["EXECUTION_STATE_FAILED"],
            "plan_time_from": NOON,
            "plan_time_before": NOON,
        },
    ),
]


def reply_of(api: Api, rpc: str, **fields: Any) -> Any:
    made: type[Message] = GetMessageClass(api.method(rpc).output_type)
    return ParseDict(fields, made())


def name_of(case: Case) -> str:
    return " ".join(case.line[:3])


@pytest.mark.parametrize("case", [*CASES, *LISTS], ids=name_of)
def test_the_request(desk: Desk, case: Case) -> None:
    reply = reply_of(case.api, case.rpc)

    outcome = desk.run(*case.line, "-o", "json", answers=[Answer(case.api, case.rpc, reply)])

    assert outcome.exit_code == 0
    assert outcome.err == ""
    assert isinstance(outcome.json, dict)
    expected = ParseDict(case.request, case.api.request(case.rpc))
    if case in LISTS:
        expected.page_size = 50
    assert outcome.request == expected
    assert outcome.metadata[0]["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--timer", "yes"), "timer"),
        (("--max-daily-runs", "-1"), "max_daily_runs"),
        (("--max-daily-cost", "much"), "max_daily_cost"),
        (("--timer-interval", "often"), "timer_interval"),
    ],
)
def test_a_heartbeat_that_cannot_be_read_is_refused_by_its_option(
    desk: Desk, words: tuple[str, str], option: str
) -> None:
    outcome = desk.run("agents", "update", A1, "--etag", "1", *words, "-o", "json", answers=[])
    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"] == option


def test_one_thing_as_a_table(desk: Desk) -> None:
    run = {
        "run_id": "r1",
        "state": "RUN_STATE_SKIPPED",
        "reason": "REASON_RUNTIME_OFFLINE",
        "message": "the runtime is away",
        "result": "eyJhIjogMX0=",
        "create_time": NOON,
    }
    reply = reply_of(AUTOPILOTS, "GetRun", run=run)

    outcome = desk.run("runs", "get", "r1", answers=[Answer(AUTOPILOTS, "GetRun", reply)])

    assert outcome.out.splitlines() == [
        "run_id       r1",
        "state        skipped",
        "reason       runtime_offline",
        "message      the runtime is away",
        'result       {"a": 1}',
        "create_time  2026-11-29T12:00:00Z",
    ]


def test_one_thing_as_json_shows_every_field(desk: Desk) -> None:
    delivery = {"delivery_id": "d1", "body_sha256": "q80=", "body_bytes": 2, "headers": {"b": "1"}}
    reply = reply_of(DELIVERIES, "GetDelivery", delivery=delivery)
    answers = [Answer(DELIVERIES, "GetDelivery", reply)]

    shown = desk.run("deliveries", "get", "d1", "-o", "json", answers=answers).json

    assert shown["delivery_id"] == "d1"
    assert shown["body_sha256"] == "abcd"
    assert shown["body_bytes"] == 2
    assert shown["headers"] == {"b": "1"}
    assert shown["state"] is None
    assert shown["finish_time"] is None
    assert shown["event"] == ""


def test_a_list_as_a_table(desk: Desk) -> None:
    triggers = [
        {
            "trigger_id": "t1",
            "enabled": True,
            "schedule": {"cron": "0 9 * * *", "time_zone": "Europe/Berlin"},
        },
        {
            "trigger_id": "t2",
            "synced": True,
            "label": "hub",
            "webhook": {
                "provider": "github",
                "event_filters": [{"event": "issues", "actions": ["opened"]}, {"event": "push"}],
            },
        },
        {"trigger_id": "t3", "webhook": {"provider": "generic"}},
    ]
    reply = reply_of(AUTOPILOTS, "ListTriggers", triggers=triggers)

    outcome = desk.run("triggers", "list", P1, answers=[Answer(AUTOPILOTS, "ListTriggers", reply)])

    lines = [line.split("  ") for line in outcome.out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["TRIGGER ID", "ENABLED", "SYNCED", "FIRES", "LABEL"],
        ["t1", "yes", "no", "0 9 * * * (Europe/Berlin)"],
        ["t2", "no", "yes", "github webhook: issues:opened push", "hub"],
        ["t3", "no", "no", "generic webhook: every event"],
    ]
    assert "\x1b" not in outcome.out


def test_an_empty_list_says_so_on_stderr(desk: Desk) -> None:
    reply = reply_of(AUTOPILOTS, "ListTriggers")

    outcome = desk.run("triggers", "list", P1, answers=[Answer(AUTOPILOTS, "ListTriggers", reply)])

    assert (outcome.out, outcome.err) == ("", "No triggers.\n")


def test_what_is_done_is_said_on_stderr(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "DeleteTrigger", reply_of(AUTOPILOTS, "DeleteTrigger"))]

    outcome = desk.run("triggers", "delete", "t1", answers=answers)

    assert (outcome.out, outcome.err) == ("", "Deleted.\n")


def test_a_value_from_a_file_or_from_stdin(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"command": ["a"]}))
    line = ["agents", "create", "x", "-w", W1, "--adapter", "process", "--adapter-config-file"]
    answers = [Answer(AGENTS, "CreateAgent", reply_of(AGENTS, "CreateAgent"))]

    from_file = desk.run(*line, str(file), answers=answers)
    from_stdin = desk.run(*line, "-", answers=answers, stdin=b'{"command": ["b"]}')

    assert from_file.request.adapter_config["command"][0] == "a"
    assert from_stdin.request.adapter_config["command"][0] == "b"


def test_the_only_workspace_is_the_default(desk: Desk) -> None:
    one = reply_of(WORKSPACES, "ListWorkspaces", workspaces=[{"workspace_id": W1}])
    answers = [
        Answer(WORKSPACES, "ListWorkspaces", one),
        Answer(WORKSPACES, "ListMembers", reply_of(WORKSPACES, "ListMembers")),
    ]

    outcome = desk.run("members", "list", answers=answers)

    assert outcome.requests[1].workspace_id == W1


def test_the_variable_names_the_workspace(desk: Desk) -> None:
    desk.environment["REVEILLE_WORKSPACE"] = W1
    answers = [Answer(WORKSPACES, "ListMembers", reply_of(WORKSPACES, "ListMembers"))]

    assert desk.run("members", "list", answers=answers).request.workspace_id == W1


@pytest.mark.parametrize(
    ("known", "exit_code", "reason"), [(0, 3, "not_found"), (2, 2, "invalid_field")]
)
def test_no_default_workspace(desk: Desk, known: int, exit_code: int, reason: str) -> None:
    several = [{"workspace_id": f"w{index}"} for index in range(known)]
    reply = reply_of(WORKSPACES, "ListWorkspaces", workspaces=several)

    outcome = desk.run(
        *("members", "list", "-o", "json"), answers=[Answer(WORKSPACES, "ListWorkspaces", reply)]
    )

    assert outcome.exit_code == exit_code
    assert outcome.json["error"]["reason"] == reason


def test_executions_of_a_job_without_scopes_are_told_apart(desk: Desk) -> None:
    found = reply_of(
        SCHEDULER,
        "ListExecutions",
        executions=[
            {"job_name": name, "scope_kind": "global", "scope_id": "global"}
            for name in ("webhook_retention", "heartbeat_retention")
        ],
    )

    outcome = desk.run("executions", "list", answers=[Answer(SCHEDULER, "ListExecutions", found)])

    heading, *rows = outcome.out.splitlines()
    assert "JOB" in heading
    assert ["webhook_retention" in rows[0], "heartbeat_retention" in rows[1]] == [True, True]
