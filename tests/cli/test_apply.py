"""`reveille apply`, step by step: no hook without its secret, no address lost, nothing unasked."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reveille.autopilot.v1 import autopilot_pb2, workspace_service_pb2
from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.heartbeat.v1 import agent_pb2
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_cli.apis import AGENTS, AUTOPILOTS, ENDPOINTS, WORKSPACES
from reveille_cli.connection import Client
from reveille_cli.main import app
from reveille_runtime.errors import InvalidArgument, Unavailable

from .conftest import Answer, Desk, Outcome

SECRET = "a secret of some length"
FILE = """\
workspace: {name: W}
agents: [{name: a, adapter: echo, config: {env: {API_KEY: {fromEnv: API_KEY}}}}]
autopilots:
  - title: T
    agent: a
    mode: run_only
    prompt: Look.
    triggers:
      - {label: first, provider: github}
      - {label: second, provider: github, signingSecret: {fromEnv: HUB_SECRET}}
"""
AWAY = Unavailable("DEPENDENCY_UNAVAILABLE", "the gateway is away")
CHECKED = Answer(ENDPOINTS, "CheckEndpoint", endpoint_pb.CheckEndpointResponse())
SENT = "the key of today"
W = "0197f3a0-0000-7000-8000-000000000001"


def standing(*triggers: autopilot_pb2.Trigger) -> list[Answer]:
    """Answer what is asked of a workspace that holds all of the file but its triggers."""
    agent = agent_pb2.Agent(agent_id="a1", name="a", adapter="echo", etag="1")
    agent.adapter_config.update({"env": {"API_KEY": "********"}})
    rule = autopilot_pb2.Autopilot(
        autopilot_id="p1",
        title="T",
        agent_id="a1",
        execution_mode=autopilot_pb2.EXECUTION_MODE_RUN_ONLY,
        prompt="Look.",
    )
    workspace = workspace_service_pb2.Workspace(workspace_id=W, name="W")
    return [
        Answer(
            WORKSPACES,
            "ListWorkspaces",
            workspace_service_pb2.ListWorkspacesResponse(workspaces=[workspace]),
        ),
        Answer(WORKSPACES, "ListMembers", workspace_service_pb2.ListMembersResponse()),
        Answer(AGENTS, "ListAgents", agent_pb2.ListAgentsResponse(agents=[agent])),
        Answer(AUTOPILOTS, "ListAutopilots", autopilot.ListAutopilotsResponse(autopilots=[rule])),
        Answer(AUTOPILOTS, "ListTriggers", autopilot.ListTriggersResponse(triggers=triggers)),
    ]


def hook(label: str) -> autopilot_pb2.Trigger:
    return autopilot_pb2.Trigger(
        trigger_id=f"t-{label}",
        label=label,
        enabled=True,
        webhook=autopilot_pb2.WebhookTrigger(provider="github"),
    )


def secrets_sent(etag: str) -> Answer:
    """Answer the secret of the agent, which may be what it has already."""
    reply = agent_pb2.UpdateAgentResponse(agent=agent_pb2.Agent(agent_id="a1", etag=etag))
    return Answer(AGENTS, "UpdateAgent", reply)


def created(label: str) -> Answer:
    url = f"http://gateway/hooks/awt_{label}"
    reply = autopilot.CreateTriggerResponse(
        trigger=hook(label), hook_path=f"/hooks/awt_{label}", hook_url=url, endpoint_ready=True
    )
    return Answer(AUTOPILOTS, "CreateTrigger", reply)


def added(reply: Any = None) -> Answer:
    return Answer(AUTOPILOTS, "AddSigningSecret", reply or autopilot.AddSigningSecretResponse())


@pytest.fixture
def apply(desk: Desk, tmp_path: Path) -> Any:
    file = tmp_path / "w.yaml"
    file.write_text(FILE, encoding="utf-8")
    desk.environment |= {"HUB_SECRET": SECRET, "API_KEY": SENT}

    def run(*words: str, answers: list[Answer]) -> Outcome:
        return desk.run("apply", "-f", str(file), *words, answers=answers)

    return run


def test_a_new_hook_has_its_secret_before_its_address_is_shown(apply: Any) -> None:
    outcome = apply(
        answers=[
            *standing(),
            *(CHECKED, CHECKED),
            *(secrets_sent("2"), created("first"), created("second"), added()),
        ]
    )

    assert outcome.exit_code == 0
    assert outcome.requests[-1].secret == SECRET.encode()
    assert "T / first: http://gateway/hooks/awt_first" in outcome.out
    assert "T / second: http://gateway/hooks/awt_second" in outcome.out
    # The one that goes without is named.
    assert "T / first: Without a signing secret" in outcome.err
    assert "T / second: Without" not in outcome.err
    assert SECRET not in outcome.out + outcome.err


@pytest.mark.parametrize("undone", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_hook_whose_secret_fails_is_undone_and_the_others_are_shown(
    apply: Any, undone: bool, as_json: bool
) -> None:
    undo = autopilot.DeleteTriggerResponse() if undone else AWAY
    outcome = apply(
        *(("-o", "json") if as_json else ()),
        answers=[
            *standing(),
            *(CHECKED, CHECKED),
            *(secrets_sent("2"), created("first"), created("second"), added(AWAY)),
            Answer(AUTOPILOTS, "DeleteTrigger", undo),
        ],
    )

    assert outcome.exit_code == 6
    assert outcome.requests[-1].trigger_id == "t-second"
    said = outcome.json["error"]["hint"] if as_json else outcome.err
    expected = "the trigger was deleted again" if undone else "reveille triggers delete t-second"
    assert expected in said
    assert "w.yaml:10; 2 of 4 steps are done, and apply goes on where it stopped" in said
    # The first one's address is shown now or never, the second one's is nobody's.
    if as_json:
        assert outcome.json["hooks"] == [
            {
                "autopilot": "T",
                "trigger": "first",
                "hook_path": "/hooks/awt_first",
                "hook_url": "http://gateway/hooks/awt_first",
            }
        ]
    else:
        assert "T / first: http://gateway/hooks/awt_first" in outcome.out
    assert "awt_second" not in outcome.out + outcome.err


class Ends(Exception):
    """A fault that has no written form."""


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("signals", "ends", "told"),
    [
        # Once: the hook that is being made gets its secret, and only then it ends.
        (1, ("first", "second"), "between two steps"),
        (2, ("first",), "during trigger 'second'"),
        (0, ("first",), ""),
    ],
    ids=["asked", "insisted", "broke"],
)
def test_whatever_ends_it_the_addresses_that_were_made_are_told(
    desk: Desk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    signals: int,
    ends: tuple[str, ...],
    told: str,
    as_json: bool,
) -> None:
    replies = {each.rpc: each.reply for each in (*standing(), CHECKED, secrets_sent("2"), added())}
    asked: list[str] = []

    def answer(client: Client, api: Any, rpc: str, request: Any, **more: Any) -> Any:
        del more
        asked.append(rpc)
        if rpc != "CreateTrigger":
            return replies[rpc]
        if request.label == "second":
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)
            if not signals:
                raise Ends
        return created(request.label).reply

    monkeypatch.setattr(Client, "call", answer)
    file = tmp_path / "w.yaml"
    file.write_text(FILE + "      - {label: third, provider: github}\n", encoding="utf-8")
    words = ["apply", "-f", str(file), *(("-o", "json") if as_json else ())]
    handler = signal.getsignal(signal.SIGINT)

    # Signals reach the main thread only, which is this one.
    result = CliRunner().invoke(
        app, words, env={**desk.environment, "HUB_SECRET": SECRET, "API_KEY": SENT}
    )

    urls = [f"http://gateway/hooks/awt_{each}" for each in ends]
    if as_json:
        document = json.loads(result.stdout)
        assert [each["hook_url"] for each in document["hooks"]] == urls
        assert told in document.get("error", {}).get("message", "")
    else:
        assert [
            line.rpartition(" ")[2] for line in result.stdout.splitlines()[-len(urls) :]
        ] == urls
        assert told in result.stderr
    assert (result.exit_code == 130) is bool(signals)
    assert asked.count("AddSigningSecret") == len(ends) - 1
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_secret_of_a_hook_that_stands_is_added_and_never_undone(apply: Any) -> None:
    hints = Answer(AUTOPILOTS, "ListSigningSecrets", autopilot.ListSigningSecretsResponse())

    outcome = apply(
        answers=[*standing(hook("first"), hook("second")), hints, secrets_sent("1"), added(AWAY)]
    )

    assert outcome.exit_code == 6
    assert outcome.requests[-1].trigger_id == "t-second"


def live(hint: str, expires: str = "") -> Answer:
    secret = autopilot.SigningSecret(secret_id="s1", hint=hint)
    if expires:
        secret.expire_time.FromJsonString(expires)
    reply = autopilot.ListSigningSecretsResponse(signing_secrets=[secret])
    return Answer(AUTOPILOTS, "ListSigningSecrets", reply)


def test_an_expired_secret_is_none(apply: Any) -> None:
    outcome = apply(
        *("-o", "json", "--dry-run"),
        answers=[
            *standing(hook("first"), hook("second")),
            live(SECRET[-4:], "2020-01-01T00:00:00Z"),
        ],
    )

    assert "add_secret" in {each["action"] for each in outcome.json["changes"]}


@pytest.mark.parametrize(("etag", "changes"), [("1", []), ("2", ["send_secrets"])])
def test_secrets_of_an_agent_are_sent_each_time_and_a_change_only_if_they_are_other(
    apply: Any, etag: str, changes: list[str]
) -> None:
    there = [*standing(hook("first"), hook("second")), live(SECRET[-4:])]

    outcome = apply("-o", "json", answers=[*there, secrets_sent(etag)])

    assert outcome.requests[-1].agent.adapter_config["env"]["API_KEY"] == SENT
    assert list(outcome.requests[-1].update_mask.paths) == ["adapter_config"]
    assert [each["action"] for each in outcome.json["changes"]] == changes
    assert SENT not in outcome.out


def test_who_changes_secrets_is_told_whose(apply: Any) -> None:
    there = [*standing(hook("first"), hook("second")), live(SECRET[-4:])]

    outcome = apply(answers=[*there, secrets_sent("2")])

    assert "The secrets of agent a were others before.\nDone.\n" in outcome.err


def test_a_dry_run_asks_the_gateway_and_tells_all_that_it_refuses(apply: Any) -> None:
    refusal = Answer(
        ENDPOINTS, "CheckEndpoint", InvalidArgument.of("provider", "must be one of: github")
    )

    outcome = apply("--dry-run", "-o", "json", answers=[*standing(), refusal, refusal])

    assert outcome.exit_code == 2
    assert [each["description"] for each in outcome.json["error"]["violations"]] == [
        "trigger 'first': provider: must be one of: github",
        "trigger 'second': provider: must be one of: github",
    ]
    assert outcome.json["error"]["violations"][1]["field"].endswith("w.yaml:10")


def test_without_the_gateway_a_dry_run_fails_and_an_apply_goes_on(apply: Any) -> None:
    away = Answer(ENDPOINTS, "CheckEndpoint", AWAY)

    dry = apply("--dry-run", "-o", "json", answers=[*standing(), away])
    made = apply(
        answers=[
            *standing(),
            away,
            *(secrets_sent("2"), created("first"), created("second"), added()),
        ]
    )

    assert (dry.exit_code, dry.json["error"]["reason"]) == (6, "dependency_unavailable")
    assert made.exit_code == 0


def test_a_dry_run_says_what_it_did_not_check(apply: Any) -> None:
    outcome = apply("--dry-run", answers=[*standing(), CHECKED, CHECKED])

    assert outcome.exit_code == 0
    assert "Nothing was changed. What a service judges only when it is done" in outcome.err
    assert "~ agent a: send secrets" in outcome.out
    # Whether secrets are other ones is not known yet.
    assert "2 of 5 things differ." in outcome.err


def test_a_moment_that_has_passed_is_refused_before_anything_is_done(
    apply: Any, tmp_path: Path
) -> None:
    text = FILE.replace("{label: first, provider: github}", "{label: first, at: 2020-01-01T09:00Z}")
    (tmp_path / "w.yaml").write_text(text, encoding="utf-8")

    outcome = apply("-o", "json", answers=[*standing(), CHECKED])

    assert outcome.exit_code == 2
    assert outcome.json["error"]["field"].endswith("w.yaml:9")
    assert "at must lie in the future" in outcome.json["error"]["message"]


def test_of_what_is_there_only_what_changes_is_checked(apply: Any, tmp_path: Path) -> None:
    """A moment that was in the past all along is no news; options that are asked for are."""
    once = autopilot_pb2.Trigger(trigger_id="t-once", label="once", enabled=True)
    once.schedule.run_at.FromJsonString("2020-01-01T09:00:00Z")
    there = standing(once, hook("first"))
    refusal = InvalidArgument.of("options.rate_per_minute", "is too much")

    def tried(moment: str, options: str) -> list[str]:
        text = FILE.replace(
            "{label: first, provider: github}",
            f"{{label: first, provider: github{options}}}\n      - {{label: once, at: {moment},"
            " enabled: false}",
        ).replace(
            "      - {label: second, provider: github, signingSecret: {fromEnv: HUB_SECRET}}\n", ""
        )
        (tmp_path / "w.yaml").write_text(text, encoding="utf-8")
        answers = [Answer(ENDPOINTS, "CheckEndpoint", refusal)] if options else []
        outcome = apply("--dry-run", "-o", "json", answers=[*there, *answers])
        error = outcome.json.get("error", {})
        return [each["description"] for each in error.get("violations", ())]

    late = "trigger 'once': at must lie in the future"
    assert tried("2020-01-01T09:00Z", "") == []
    assert tried("2020-01-01T10:00Z", ", options: {rate_per_minute: 9}") == [
        "trigger 'first': options.rate_per_minute: is too much",
        late,
    ]


def test_an_export_says_how_many_triggers_no_file_can_name(desk: Desk) -> None:
    rest = standing(hook("first"), hook(""), hook(""))[1:]
    found = standing()[0]
    assert isinstance(found.reply, workspace_service_pb2.ListWorkspacesResponse)
    one = workspace_service_pb2.GetWorkspaceResponse(workspace=found.reply.workspaces[0])

    outcome = desk.run(
        *("export", "-w", W),
        answers=[Answer(WORKSPACES, "GetWorkspace", one), found, *rest],
    )

    assert "label: first" in outcome.out
    assert outcome.err.startswith("2 triggers without a label were left out")
