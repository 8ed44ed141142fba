"""A workspace as a file: what is read of it, what is refused with which line, and what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reveille.autopilot.v1 import autopilot_pb2
from reveille_cli.apply.document import Problems, load
from reveille_cli.apply.plan import HIDDEN, Action, Change, make_plan
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.wanted import Wanted, read_wanted
from reveille_cli.failures import Failure

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "workspace.yaml"
SECRET = "0123456789abcdef"


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
