"""A workspace as one file, applied to four real services: planned, made, found made, exported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from reveille_cli.main import app

from .harness import World

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workspace.yaml"
HOOKS = """\
workspace: {name: Hooks, issuePrefix: HKS}
agents: [{name: reader, adapter: echo, config: {summary: Seen.}}]
autopilots:
  - title: Builds
    agent: reader
    mode: run_only
    prompt: Look.
    triggers:
      - label: from the builder
        provider: generic_hmac
        maxBodyBytes: 1000
        options:
          generic: {header: X-Acme-Signature, algorithm: sha512, encoding: base64, prefix: v1=,
            separator: ",", event: built}
          content_policy: refuse
          rate_per_minute: 10
          hourly_budget: 20
          lane_path: pull_request.number
          excluded_senders: [our-bot, another]
          own_markers: ["<!-- ours -->"]
      - {label: from github, provider: github}
"""


async def reveille(world: World, *words: str, code: int = 0) -> str:
    environment = {
        "REVEILLE_DATA_DIR": str(world.stack.data_dir.root),
        "GITHUB_SECRET": "0123456789abcdef",
        "COLUMNS": "200",
    }
    result = await asyncio.to_thread(CliRunner().invoke, app, list(words), env=environment)
    assert result.exit_code == code, result.output
    return result.stdout


async def applied(world: World, file: Path, *more: str, code: int = 0) -> Any:
    return json.loads(
        await reveille(world, "apply", "-f", str(file), "-o", "json", *more, code=code)
    )


async def test_a_file_is_applied_once_and_changes_nothing_again(
    world: World, tmp_path: Path
) -> None:
    dry = await applied(world, EXAMPLE, "--dry-run")
    assert not dry["applied"]
    assert [(each["action"], each["kind"]) for each in dry["changes"]] == [
        ("create", "workspace"),
        ("create", "member"),
        ("create", "agent"),
        ("create", "autopilot"),
        ("create", "trigger"),
        ("create", "autopilot"),
        ("create", "trigger"),
        ("add_secret", "trigger"),
    ]
    first = await applied(world, EXAMPLE)
    assert first["changes"] == dry["changes"]
    (hook,) = first["hooks"]
    assert hook["hook_path"].startswith("/hooks/awt_")
    assert (await applied(world, EXAMPLE))["changes"] == []
    # What is exported can be applied, and is what there is.
    exported = tmp_path / "exported.yaml"
    exported.write_text(await reveille(world, "export", "-w", "Example"), encoding="utf-8")
    assert "Nightly check" in exported.read_text(encoding="utf-8")
    assert (await applied(world, exported))["changes"] == []
    edited = tmp_path / "edited.yaml"
    text = EXAMPLE.read_text(encoding="utf-8").replace("0 3 * * *", "0 4 * * *")
    edited.write_text(text.replace("mode: run_only", "mode: run_only\n    paused: true"))
    changed = (await applied(world, edited))["changes"]
    assert [(each["action"], each["name"]) for each in changed] == [
        ("pause", "Nightly check"),
        ("update", "every night"),
    ]
    assert changed[1]["differences"] == {
        "schedule.cron": {"before": "0 3 * * *", "after": "0 4 * * *"}
    }
    # A refusal by a service names the line, and the next call goes on from there.
    edited.write_text(text.replace("{{date}}", "{{month}}"), encoding="utf-8")
    refused = await applied(world, edited, code=2)
    assert refused["error"]["field"] == "autopilot.issue_title_template"
    assert "edited.yaml:28" in refused["error"]["hint"]
    # What can be told before is told by its line, and nothing is done.
    wrong = text.replace("0 4 * * *", "61 * * * *").replace("provider: github", "provider: gitbub")
    edited.write_text(wrong.replace("label: from github", "label: from nowhere"), encoding="utf-8")
    for words in ((), ("--dry-run",)):
        refused = await applied(world, edited, *words, code=2)
        assert refused["error"]["field"].endswith("edited.yaml:26")
    edited.write_text(edited.read_text(encoding="utf-8").replace("61 * * * *", "0 4 * * *"))
    for words in ((), ("--dry-run",)):
        refused = await applied(world, edited, *words, code=2)
        assert refused["error"]["field"].endswith("edited.yaml:34")
        assert "provider: must be" in refused["error"]["message"]


async def test_an_agent_with_a_secret_from_elsewhere_is_applied_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text(
        "workspace: {name: Sealed, issuePrefix: SLD}\n"
        "agents: [{name: a, adapter: process, maxConcurrentRuns: 0,\n"
        "  config: {command: [run], env: {API_KEY: {fromEnv: SOME_API_KEY}}}}]\n",
        encoding="utf-8",
    )
    for key, actions in (
        ("of today", ["create", "create"]),
        ("of today", []),
        ("of tomorrow", ["send_secrets"]),
        ("of tomorrow", []),
    ):
        monkeypatch.setenv("SOME_API_KEY", key)
        changes = (await applied(world, file))["changes"]
        assert [each["action"] for each in changes] == actions


@pytest.mark.parametrize("output", ["json", "table"])
async def test_a_wrong_file_is_refused_whole(world: World, tmp_path: Path, output: str) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("workspace: {name: Nobody}\nagents:\n  - adapter: echo\n", encoding="utf-8")
    await reveille(world, "apply", "-f", str(wrong), "-o", output, code=2)
    listed = json.loads(await reveille(world, "workspaces", "list", "-o", "json"))
    assert "Nobody" not in {each["name"] for each in listed["workspaces"]}


async def exported(world: World, workspace: str) -> Any:
    return json.loads(await reveille(world, "export", "-w", workspace, "-o", "json"))


async def test_the_options_of_hooks_outlive_an_export(world: World, tmp_path: Path) -> None:
    file = tmp_path / "hooks.yaml"
    file.write_text(HOOKS, encoding="utf-8")
    await applied(world, file)
    assert (await applied(world, file))["changes"] == []
    there = await exported(world, "Hooks")
    github, builder = there["autopilots"][0]["triggers"]
    wanted = yaml.safe_load(HOOKS)["autopilots"][0]["triggers"][0]
    assert (builder, "options" in github) == (wanted, False)
    # What is exported is what there is, and makes the same under another name.
    text = await reveille(world, "export", "-w", "Hooks")
    file.write_text(text, encoding="utf-8")
    assert (await applied(world, file))["changes"] == []
    file.write_text(text.replace("Hooks", "Restored").replace("HKS", "RST"), encoding="utf-8")
    await applied(world, file)
    assert (await exported(world, "Restored"))["autopilots"] == there["autopilots"]


async def test_the_options_of_a_hook_are_changed_as_a_whole_and_cleared(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "hooks.yaml"

    async def with_options(options: str, code: int = 0) -> Any:
        text = f"""\
workspace: {{name: Changing, issuePrefix: CHG}}
agents: [{{name: reader, adapter: echo, config: {{summary: Seen.}}}}]
autopilots:
  - title: Issues
    agent: reader
    mode: run_only
    prompt: Look.
    triggers:
      - {{label: from github, provider: github{options}}}
"""
        file.write_text(text, encoding="utf-8")
        return await applied(world, file, code=code)

    async def hook() -> Any:
        return (await exported(world, "Changing"))["autopilots"][0]["triggers"][0]

    await with_options(", options: {rate_per_minute: 10, excluded_senders: [our-bot]}")
    (change,) = (await with_options(", options: {rate_per_minute: 20}"))["changes"]
    assert change["differences"] == {
        "webhook.options.rate_per_minute": {"before": 10, "after": 20},
        "webhook.options.excluded_senders": {"before": ["our-bot"], "after": None},
    }
    assert (await hook())["options"] == {"rate_per_minute": 20}
    # What the file does not name stays.
    assert (await with_options(""))["changes"] == []
    assert (await hook())["options"] == {"rate_per_minute": 20}
    # What the gateway refuses names the line, and changes nothing.
    refused = await with_options(", options: {generic: {header: X-A}}", code=2)
    assert refused["error"]["reason"] == "invalid_field"
    assert refused["error"]["field"].endswith("hooks.yaml:9")
    assert "options.generic" in refused["error"]["message"]
    assert (await hook())["options"] == {"rate_per_minute": 20}
    assert len((await with_options(", options: {}"))["changes"]) == 1
    assert "options" not in await hook()
    assert (await with_options(", options: {}"))["changes"] == []
