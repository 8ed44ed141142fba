"""A workspace as a file: what is read of it, what is refused with which line, and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reveille.autopilot.v1 import autopilot_pb2, autopilot_service_pb2, workspace_service_pb2
from reveille.heartbeat.v1 import agent_pb2
from reveille.webhook.v1 import endpoint_service_pb2
from reveille_autopilot.domain.accepting import DEFAULT_BODY_BYTES
from reveille_autopilot.rpc.parse import new_secret
from reveille_cli.apply.document import Problems, load
from reveille_cli.apply.export import document_of
from reveille_cli.apply.plan import HIDDEN, MASKED, USUAL, Action, Change, make_plan
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.wanted import Wanted, read_wanted
from reveille_cli.failures import Failure
from reveille_cli.nouns.secrets import SECRET_BYTES
from reveille_heartbeat.domain import redaction
from reveille_heartbeat.rpc.parse_agents import settings
from reveille_runtime.errors import InvalidArgument
from reveille_runtime.validation import Violations
from reveille_webhook.domain.endpoint import hint_of

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "workspace.yaml"
SECRET = "0123456789abcdef"
HOOK = """\
workspace: {name: W, issuePrefix: WWW}
agents: [{name: a, adapter: echo, config: {summary: Seen.}}]
autopilots:
  - title: T
    agent: a
    mode: run_only
    prompt: Look.
    triggers:
      - label: builds
        provider: generic_hmac
        options: OPTIONS
"""
EVERY_OPTION = """
          generic:
            header: X-Acme-Signature
            algorithm: sha512
            encoding: base64
            prefix: v1=
            separator: ","
            event: built
          content_policy: refuse
          rate_per_minute: 10
          hourly_budget: 20
          lane_path: items.0.id
          excluded_senders: [our-bot, another]
          own_markers: ["<!-- ours -->"]
"""


def read(text: str, folder: Path = Path()) -> list[Wanted]:
    problems = Problems("file.yaml", folder)
    return read_wanted(load(text, problems), problems)


def refusals(text: str) -> list[str]:
    with pytest.raises(Failure) as raised:
        read(text)
    return [
        f"{each.field.rpartition(':')[2]} {each.description}" for each in raised.value.violations
    ]


def plan(things: list[Wanted], standing: Standing, **hints: set[str]) -> list[Change]:
    return make_plan(things, standing, hints, Problems("file.yaml", Path()))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    monkeypatch.setenv("GITHUB_SECRET", SECRET)
    return read(EXAMPLE.read_text(encoding="utf-8"))


def test_the_example_is_read_whole(example: list[Wanted]) -> None:
    assert [(each.kind.word, each.name, each.parent) for each in example] == [
        ("workspace", "Example", ""),
        ("member", "ann", ""),
        ("agent", "triage", ""),
        ("autopilot", "Nightly check", ""),
        ("trigger", "every night", "Nightly check"),
        ("autopilot", "New issues", ""),
        ("trigger", "from github", "New issues"),
    ]
    workspace, _, agent, nightly, night, _, github = example
    assert (workspace.message.quota.limit, workspace.message.issue_prefix) == (1000, "EXM")
    assert dict(agent.message.adapter_config) == {"summary": "Looked at it."}
    assert nightly.references == {"agent_id": ("agent", "triage")}
    assert nightly.message.overlap_policy == autopilot_pb2.OVERLAP_POLICY_SKIP
    assert night.message.schedule.time_zone == "Europe/Berlin"
    assert github.secret == SECRET.encode()
    assert SECRET not in repr(github)
    assert list(github.message.webhook.event_filters[0].actions) == ["opened", "reopened"]


def test_everything_that_is_wrong_is_told_at_once_with_its_line() -> None:
    text = """\
workspace:
  name: W
  colour: blue
  quota: much
members:
  - user: ann
    role: king
  - user: ann
    role: member
agents: [{name: a, adapter: echo, config: {key: {fromEnv: NOT_SET_ANYWHERE}}}]
autopilots:
  - title: T
    mode: run_only
    overlap: never
    triggers:
      - label: l
        cron: "@daily"
        provider: github
      - label: s
        provider: github
        signingSecret: in clear text, and long enough
      - cron: "@daily"
"""
    told = refusals(text)
    assert [line.split()[0] for line in told] == sorted((line.split()[0] for line in told), key=int)
    for expected in (
        "3 workspace has no 'colour'",
        "4 quota: must be off",
        "7 role: 'king' is none of",
        "8 member 'ann' stands in line 6 too",
        "10 key: the variable NOT_SET_ANYWHERE is not set",
        "12 autopilot: give exactly one of agent and squad",
        "12 autopilot: prompt is missing",
        "14 overlap: 'never' is none of",
        "16 trigger: give exactly one of cron, at and provider",
        "21 signingSecret: a file holds no secrets",
        "22 trigger: label is missing",
    ):
        assert any(line.startswith(expected) for line in told), (expected, told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1 the file is empty"),
        ("a: [", "1 this is no YAML"),
        ("a:\n\tb: 1", "2 this is no YAML"),
        ("- x", "1 the file must have fields"),
        ("members: []", "1 workspace is missing"),
        ("workspace: {name: W}\nworkspace: {name: V}", "2 'workspace' stands here twice"),
        ("workspace: {name: W}\nagents: triage", "2 agents must be a list"),
    ],
)
def test_what_is_no_such_file_is_refused_with_its_line(text: str, expected: str) -> None:
    told = refusals(text)
    assert any(line.startswith(expected) for line in told), told


def test_values_come_from_variables_and_from_files_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.md").write_text("Look.\n", encoding="utf-8")
    monkeypatch.setenv("API_KEY", "very secret")
    *_, agent, rule = read(
        """\
workspace: {name: W}
agents:
  - name: a
    adapter: process
    config: {command: [run], env: {KEY: {fromEnv: API_KEY}}}
autopilots:
  - {title: T, agent: a, mode: run_only, prompt: {fromFile: prompt.md}}
""",
        tmp_path,
    )
    assert rule.message.prompt == "Look."
    assert agent.message.adapter_config["env"]["KEY"] == "very secret"
    changes = plan([agent], Standing("w"))
    shown = {each.path: each.after for each in changes[0].differences}
    assert shown["adapter_config"] == HIDDEN
    assert "very secret" not in str(changes[0].document())


def as_made(things: list[Wanted]) -> Standing:
    """What there would be after everything was applied."""
    standing = Standing("w")
    for each in things:
        thing: Any = type(each.message)()
        thing.CopyFrom(each.message)
        if each.kind.word in {"agent", "autopilot", "trigger"}:
            setattr(thing, f"{each.kind.word}_id", f"id of {each.name}")
        for path, (_, name) in each.references.items():
            setattr(thing, path, f"id of {name}")
        standing.things[each.key] = thing
    return standing


def test_what_is_as_the_file_says_needs_no_step(example: list[Wanted]) -> None:
    standing = as_made(example)
    assert plan(example, standing, **{"id of from github": {"cdef"}}) == []
    # Without a live secret of that hint it is added, and nothing else.
    (change,) = plan(example, standing)
    assert (change.action, change.wanted.name) == (Action.ADD_SECRET, "from github")


def test_only_what_differs_is_changed_and_what_is_not_named_stays(example: list[Wanted]) -> None:
    standing = as_made(example)
    rule = standing.things["autopilot", "", "Nightly check"]
    rule.prompt, rule.issue_title_template = "Look.", "not named in the file"
    standing.things["trigger", "Nightly check", "every night"].schedule.cron = "0  3 * * *"
    changes = plan(example, standing, **{"id of from github": {"cdef"}})
    (change,) = changes
    (difference,) = change.differences
    assert (change.action, difference.path, difference.before) == (Action.UPDATE, "prompt", "Look.")
    assert set(change.document()["differences"]) == {"prompt"}


def test_what_cannot_be_changed_is_refused_before_anything_is_done(example: list[Wanted]) -> None:
    standing = as_made(example)
    standing.things["workspace", "", "Example"].issue_prefix = "OLD"
    standing.things["trigger", "New issues", "from github"].schedule.cron = "@daily"
    with pytest.raises(Failure) as raised:
        plan(example, standing)
    told = [each.description for each in raised.value.violations]
    assert told[0].startswith("workspace 'Example': issue_prefix is OLD and stays so")
    assert told[1].startswith("trigger 'from github' is a schedule")
    nobody = [each for each in example if each.kind.word != "agent"]
    with pytest.raises(Failure) as raised:
        plan(nobody, Standing())
    assert "there is no agent 'triage'" in raised.value.violations[0].description


def hook(options: str) -> list[Wanted]:
    return read(HOOK.replace("OPTIONS", options))


def options_of(things: list[Wanted]) -> endpoint_service_pb2.EndpointOptions:
    options: endpoint_service_pb2.EndpointOptions = things[-1].message.webhook.options
    return options


def test_every_option_of_a_hook_can_be_named() -> None:
    options = options_of(hook(EVERY_OPTION))

    for message in (options, options.generic):
        named = [each.name for each, _ in message.ListFields()]
        assert named == [each.name for each in message.DESCRIPTOR.fields]
    assert (options.generic.algorithm, options.generic.separator) == ("sha512", ",")
    assert options.content_policy == endpoint_service_pb2.CONTENT_POLICY_REFUSE
    assert (options.rate_per_minute, options.hourly_budget) == (10, 20)
    assert list(options.excluded_senders) == ["our-bot", "another"]


def test_a_wrong_option_of_a_hook_is_told_with_its_own_line() -> None:
    text = """\
workspace: {name: W}
autopilots:
  - title: T
    squad: s
    mode: run_only
    prompt: Look.
    triggers:
      - label: l
        provider: github
        options:
          colour: blue
          content_policy: never
          rate_per_minute: ten
          hourly_budget: 3000000000
          lane_path: [a]
          excluded_senders: our-bot
          own_markers: [true]
          generic:
            header: {a: b}
            salt: x
      - {label: m, provider: github, options: refuse}
      - {label: n, provider: github, options: {generic: hex}}
      - {label: o, provider: github, options: {rate_per_minute: true, hourly_budget: 1.5}}
      - {label: c, cron: "@daily", options: {}}
"""
    told = refusals(text)
    for expected in (
        "11 options has no 'colour'; it may have generic, content_policy, rate_per_minute,",
        "12 options.content_policy: 'never' is none of flag, refuse",
        "13 options.rate_per_minute must be a whole number",
        "14 options.hourly_budget: ",
        "15 options.lane_path must be a text",
        "16 options.excluded_senders must be a list",
        "17 options.own_markers must be a text",
        "19 options.generic.header must be a text, fromEnv: NAME or fromFile: PATH",
        "20 options.generic has no 'salt'; it may have header, algorithm,",
        "21 options must have fields: generic, content_policy,",
        "22 options.generic must have fields: header, algorithm,",
        "23 options.hourly_budget must be a whole number",
        "23 options.rate_per_minute must be a whole number",
        "24 trigger: options does not go with cron",
    ):
        assert any(line.startswith(expected) for line in told), (expected, told)
    assert len(told) == 14


def test_options_of_a_hook_differ_one_by_one_and_are_changed_together() -> None:
    standing = as_made(hook("{rate_per_minute: 10, lane_path: a.b, generic: {prefix: v1=}}"))

    (change,) = plan(hook("{rate_per_minute: 20, generic: {prefix: v1=, event: built}}"), standing)

    assert (change.action, change.mask) == (Action.UPDATE, ["webhook.options"])
    assert change.document()["differences"] == {
        "webhook.options.rate_per_minute": {"before": 10, "after": 20},
        "webhook.options.lane_path": {"before": "a.b", "after": None},
        "webhook.options.generic.event": {"before": None, "after": "built"},
    }


@pytest.mark.parametrize("same", ["{}", "{generic: {}}", "{rate_per_minute: 0, own_markers: []}"])
def test_options_of_a_hook_that_say_the_usual_are_none(same: str) -> None:
    assert plan(hook(same), as_made(hook("{}"))) == []
    (change,) = plan(hook(same), as_made(hook("{lane_path: a.b}")))
    assert change.mask == ["webhook.options"]
    assert not options_of(hook(same)).lane_path


def test_options_of_a_hook_that_the_file_does_not_name_stay() -> None:
    unnamed = read(HOOK.replace("        options: OPTIONS\n", ""))

    assert plan(unnamed, as_made(hook(EVERY_OPTION))) == []


def test_an_option_of_a_hook_from_elsewhere_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_MARKER", "very secret")
    wanted = hook("{lane_path: a.b, own_markers: [{fromEnv: OUR_MARKER}]}")
    assert list(options_of(wanted).own_markers) == ["very secret"]

    new, changed = plan(wanted, Standing("w"))[-1], plan(wanted, as_made(hook("{}")))[-1]

    assert {each.path: each.after for each in new.differences}["webhook.options"] == HIDDEN
    assert [(each.path, each.before) for each in changed.differences] == [
        ("webhook.options", HIDDEN)
    ]
    assert changed.mask == ["webhook.options"]
    assert plan(wanted, as_made(wanted)) == []
    assert "very secret" not in str([new.document(), changed.document()])


def test_an_export_has_the_options_of_a_hook_that_are_set_and_is_what_there_is() -> None:
    standing = as_made(hook(EVERY_OPTION))

    document = document_of(standing)

    (exported,) = document["autopilots"][0]["triggers"]
    assert exported["options"] == yaml.safe_load(EVERY_OPTION)
    again = read(yaml.safe_dump(document))
    assert options_of(again) == options_of(hook(EVERY_OPTION))
    assert plan(again, standing) == []


@pytest.mark.parametrize("usual", ["{}", "{generic: {}}", "{rate_per_minute: 0}"])
def test_an_export_leaves_usual_options_of_a_hook_out(usual: str) -> None:
    document = document_of(as_made(hook(usual)))

    assert "options" not in document["autopilots"][0]["triggers"][0]
    some = document_of(as_made(hook("{content_policy: flag, generic: {event: ''}}")))
    assert some["autopilots"][0]["triggers"][0]["options"] == {"content_policy": "flag"}


@pytest.mark.parametrize(
    ("standing", "wanted"),
    [
        ("maxBodyBytes: 262144", "maxBodyBytes: 0"),
        ('events: ["issues:opened,closed"]', 'events: ["issues: opened, closed"]'),
    ],
)
def test_a_hook_that_only_says_it_otherwise_is_the_same(standing: str, wanted: str) -> None:
    one, other = (read(HOOK.replace("options: OPTIONS", each)) for each in (standing, wanted))

    assert plan(other, as_made(one)) == []


def test_words_for_the_usual_and_blanks_around_them_make_no_difference() -> None:
    text = """\
workspace: {name: W, quota: off}
agents: [{name: " a ", adapter: echo, maxConcurrentRuns: 0, invokers: [" ann "]}]
autopilots:
  - title: T
    agent: " a "
    mode: run_only
    prompt: " Look. "
    issueTitle: |
      Report of {{date}}
"""
    things = read(text)
    standing = as_made(things)
    workspace, agent, rule = (standing.things[each.key] for each in things)
    assert workspace.quota.action == workspace_service_pb2.QUOTA_ACTION_OFF
    assert (agent.name, list(agent.invocation_user_ids)) == ("a", ["ann"])
    # A prompt is what it is, blanks and all.
    assert (rule.issue_title_template, rule.prompt) == ("Report of {{date}}", " Look. ")
    agent.max_concurrent_runs = 1

    assert plan(things, standing) == []


def test_numbers_are_texts_as_they_stand_and_whole_where_numbers_are_wanted() -> None:
    label = HOOK.replace("label: builds", "label: 0123").replace("options: OPTIONS", "")
    assert read(label)[-1].name == "0123"
    timeout = HOOK.replace("config: {summary: Seen.}", "runTimeout: 900").replace(
        "options: OPTIONS", "maxBodyBytes: 1000"
    )
    assert read(timeout)[1].message.run_timeout.seconds == 900
    wrong = timeout.replace("900", "true").replace("1000", "1.5")
    assert refusals(wrong) == [
        "2 runTimeout must be a text: true is none without quotes",
        "11 maxBodyBytes must be a whole number",
    ]


@pytest.mark.parametrize(
    ("clock", "told"),
    [
        ('cron: "61 * * * *"', "10 cron: minute: "),
        ('cron: "0 0 30 2 *"', "10 cron: "),
        ('cron: "@daily"\n        timeZone: Nowhere/Land', "11 timeZone: "),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_its_line(clock: str, told: str) -> None:
    text = HOOK.replace("provider: generic_hmac\n        options: OPTIONS", clock)

    (refusal,) = refusals(text)

    assert refusal.startswith(told)


@pytest.mark.parametrize(
    ("end", "hint"), [("äöüß", "äöüß"), ("ab\tc", "ab?c")], ids=["characters", "unprintable"]
)
def test_a_secret_is_known_by_its_last_characters_as_the_gateway_shows_them(
    end: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", f"0123456789ab {end}")
    things = read(HOOK.replace("options: OPTIONS", "signingSecret: {fromEnv: SOME_SECRET}"))

    assert plan(things, as_made(things), **{"id of builds": {hint}}) == []
    assert hint_of(f"0123456789ab {end}".encode()) == hint


def test_what_the_command_knows_of_the_services_rules_is_what_they_are() -> None:
    """The command reaches services by their contracts alone, which have no constants."""
    agent = settings(Violations(), agent_pb2.CreateAgentRequest(), "ann")
    assert {
        "webhook.max_body_bytes": DEFAULT_BODY_BYTES,
        "max_concurrent_runs": agent.max_concurrent_runs,
    } == USUAL
    assert MASKED == redaction.MASKED

    def is_taken(length: int) -> bool:
        request = autopilot_service_pb2.AddSigningSecretRequest(
            trigger_id="01a22e9f-5c35-765a-b0b0-934b19ea32fe", secret=bytes(length)
        )
        try:
            new_secret(request)
        except InvalidArgument:
            return False
        return True

    assert [each for each in range(1100) if is_taken(each)] == list(SECRET_BYTES)


def agent_with(env: str) -> list[Wanted]:
    agent = f"{{name: a, adapter: process, config: {env}}}"
    return read(f"workspace: {{name: W, issuePrefix: WWW}}\nagents: [{agent}]\n")


def test_secrets_that_are_not_shown_are_sent_again_and_differ_only_where_the_rest_does() -> None:
    shown = as_made(agent_with('{command: [run], env: {API_KEY: "********", LEVEL: "1"}}'))

    (sent,) = plan(agent_with("{command: [run], env: {API_KEY: new, LEVEL: '1'}}"), shown)
    (other,) = plan(agent_with("{command: [run], env: {API_KEY: new, LEVEL: '2'}}"), shown)

    assert (sent.action, sent.differences) == (Action.SEND_SECRETS, ())
    assert (other.action, other.mask) == (Action.UPDATE, ["adapter_config"])
    assert plan(agent_with('{command: [run], env: {API_KEY: "********", LEVEL: "1"}}'), shown) == []


def test_an_archived_agent_is_refused_unless_it_is_left_as_a_rule_has_it() -> None:
    text = (
        "workspace: {name: W}\n"
        "agents: [{name: a, adapter: echo}, {name: b, adapter: echo}, {name: c, adapter: echo}]\n"
        "autopilots: [{title: T, agent: a, mode: run_only, prompt: Look.}]\n"
    )
    things = read(text)
    standing = as_made(things)
    for name in ("a", "b"):
        standing.things["agent", "", name].status = agent_pb2.AGENT_STATUS_ARCHIVED

    def told(wanted: str) -> list[str]:
        with pytest.raises(Failure) as raised:
            plan(read(wanted), standing)
        return [each.description.partition(";")[0] for each in raised.value.violations]

    a, b = (f"agent {name!r} is archived and stays so" for name in ("a", "b"))
    assert told(text) == [b]
    assert told(text.replace("name: a,", "name: a, runTimeout: 1h,")) == [a, b]
    # What is exported is what there is.
    exported = document_of(standing)
    assert [each["name"] for each in exported["agents"]] == ["a", "c"]
    assert plan(read(yaml.safe_dump(exported)), standing) == []


def test_what_is_wrong_is_told_by_its_key_in_the_file() -> None:
    told = refusals(
        """\
workspace: {name: W, failClosed: 1}
agents: [{name: a, adapter: echo, invokers: ann}]
autopilots:
  - {title: T, agent: a, mode: run_only, prompt: {fromFile: nowhere.md}, subscribers: [true]}
"""
    )
    assert told == [
        "1 failClosed must be true or false",
        "2 invokers must be a list",
        "4 prompt: cannot read nowhere.md: No such file or directory",
        "4 subscribers must be a text: true is none without quotes",
    ]


def test_a_secret_as_an_export_shows_it_is_refused_where_there_is_no_such_agent() -> None:
    with pytest.raises(Failure) as raised:
        plan(agent_with('{command: [run], env: {API_KEY: "********"}}'), Standing("w"))

    (refusal,) = raised.value.violations
    assert refusal.description.startswith("agent 'a': API_KEY is how a secret is shown")


def test_a_new_thing_needs_what_one_that_is_there_may_leave_out() -> None:
    things = read("workspace: {name: W}\nagents: [{name: a}]\n")

    with pytest.raises(Failure) as raised:
        plan(things, Standing())

    assert [each.description for each in raised.value.violations] == [
        "workspace 'W' is new: issuePrefix is missing",
        "agent 'a' is new: adapter is missing",
    ]
    assert plan(things, as_made(things)) == []
