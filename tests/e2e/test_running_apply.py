"""A workspace as one file, applied to four real services: planned, made, found made, exported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reveille_cli.main import app

from .harness import World

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workspace.yaml"


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
    edited.write_text(text.replace("0 4 * * *", "61 * * * *"), encoding="utf-8")
    refused = await applied(world, edited, code=2)
    assert refused["error"]["reason"] == "invalid_cron"
    assert "edited.yaml:25" in refused["error"]["hint"]


@pytest.mark.parametrize("output", ["json", "table"])
async def test_a_wrong_file_is_refused_whole(world: World, tmp_path: Path, output: str) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("workspace: {name: Nobody}\nagents:\n  - adapter: echo\n", encoding="utf-8")
    await reveille(world, "apply", "-f", str(wrong), "-o", output, code=2)
    listed = json.loads(await reveille(world, "workspaces", "list", "-o", "json"))
    assert "Nobody" not in {each["name"] for each in listed["workspaces"]}
