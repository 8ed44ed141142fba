"""The settings of a process agent: how they are judged, and what follows from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reveille_heartbeat.adapters.contract import AgentContext, Problem

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
RESERVED = "REVEILLE_"
LONGEST_GRACE = 600
_FIELDS = frozenset({"command", "cwd", "env", "grace_seconds"})


def problems_of(config: Mapping[str, Any]) -> list[Problem]:
    """Judge the settings, all of them at once."""
    problems = [
        Problem(name, "is not a setting of process") for name in sorted(config.keys() - _FIELDS)
    ]
    command = config.get("command")
    if (
        not isinstance(command, list)
        or not command
        or not _is_word(command[0])
        or not all(_is_word(word, empty=True) for word in command)
    ):
        problems.append(Problem("command", "must be a list of texts, the program first"))
    cwd = config.get("cwd", "/")
    if not _is_word(cwd) or not Path(cwd).is_absolute():
        problems.append(Problem("cwd", "must be an absolute path"))
    seconds = config.get("grace_seconds", 1)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        problems.append(Problem("grace_seconds", "must be a number"))
    elif not 1 <= seconds <= LONGEST_GRACE:
        problems.append(Problem("grace_seconds", f"must be from 1 to {LONGEST_GRACE}"))
    return problems + _problems_of_env(config.get("env", {}))


def environment(context: AgentContext) -> dict[str, str]:
    """Build an agent's environment from a list of what is allowed; ours wins over settings."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, **context.agent.adapter_config.get("env", {}), **context.environment}


def grace(context: AgentContext) -> float:
    """Give the seconds between asking the agent to end and ending it."""
    return float(context.agent.adapter_config.get("grace_seconds", context.limits.kill_grace))


def _problems_of_env(env: object) -> list[Problem]:
    if not isinstance(env, Mapping):
        return [Problem("env", "must be texts by name")]
    problems = []
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or name.startswith(RESERVED):
            problems.append(Problem(f"env.{name}", "is not a name that can be set"))
        elif not _is_word(value, empty=True):
            problems.append(Problem(f"env.{name}", "must be a text"))
    return problems


def _is_word(value: object, *, empty: bool = False) -> bool:
    return isinstance(value, str) and (empty or value != "") and "\0" not in value
