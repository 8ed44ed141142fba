"""`reveille agents`: what can be woken."""

from __future__ import annotations

from typing import Any

from reveille_cli.apis import AGENTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import refused
from reveille_cli.names import AGENT
from reveille_cli.nouns.shared import REQUEST_ID, WORKSPACE, the
from reveille_cli.values import command_words


def _command(request: Any, text: str, name: str) -> None:
    request.adapter_config.update({"command": command_words(text, name)})


def _directory(request: Any, text: str, _: str) -> None:
    request.adapter_config.update({"cwd": text})


def _environment(request: Any, pairs: list[str], name: str) -> None:
    variables = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise refused(name, f"{pair!r} must be NAME=VALUE")
        variables[key] = value
    request.adapter_config.get_or_create_struct("env").update(variables)


NOUN = Noun(
    name="agents",
    help="Agents: what can be woken, and by whom.",
    api=AGENTS,
    verbs=(
        Verb(
            "create",
            "Create an agent; you become its owner.",
            "CreateAgent",
            (
                Param("name", "The name, unique in the workspace.", argument=True),
                WORKSPACE,
                Param("adapter", "What runs it, such as process or echo.", required=True),
                Param("adapter_config", "The adapter's settings, a JSON object.", file=True),
                Param(
                    "",
                    "Of the process adapter: the command line, split as a shell would.",
                    flag="--command",
                    apply=_command,
                ),
                Param(
                    "",
                    "Of the process adapter: the working directory.",
                    flag="--cwd",
                    apply=_directory,
                ),
                Param(
                    "",
                    "Of the process adapter: a variable, NAME=VALUE; may be repeated.",
                    flag="--env",
                    many=True,
                    apply=_environment,
                ),
                Param("invocation_rule", "Who else may wake it.", flag="--invocation"),
                Param(
                    "invocation_user_ids",
                    "Of --invocation members: a member who may; may be repeated.",
                    flag="--invocation-user",
                ),
                Param("max_concurrent_runs", "How many runs it may have at once."),
                Param("run_timeout", "How long a run may take, such as 1h; 0 is no limit."),
                Param("idle_timeout", "How long a run may be silent, such as 15m; 0 is no limit."),
                REQUEST_ID,
            ),
            shows="agent",
        ),
        Verb("list", "List the agents by name.", "ListAgents", (WORKSPACE,), shows="agents"),
        Verb(
            "get",
            "Show an agent.",
            "GetAgent",
            (the("agent_id", "The agent.", AGENT),),
            shows="agent",
        ),
    ),
)
