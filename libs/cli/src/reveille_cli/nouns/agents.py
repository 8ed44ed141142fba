"""`reveille agents`: what can be woken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reveille_cli.apis import AGENTS
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import refused
from reveille_cli.names import AGENT, RUNTIME
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, WORKSPACE, the, truth, why
from reveille_cli.values import command_words

_ID = the("agent_id", "The agent.", AGENT)


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


def _policy(path: str, read: Callable[[str, str], Any]) -> Callable[[Any, str, str], None]:
    """Make what sets a field of the heartbeat policy; what is read as None is left out of it."""
    *parents, last = path.split(".")

    def apply(request: Any, text: str, name: str) -> None:
        value = read(text, name)
        for parent in parents:
            request = getattr(request, parent)
            request.SetInParent()
        if value is not None:
            setattr(request, last, value)

    return apply


def _cap(text: str, name: str) -> int | None:
    if text == "none":
        return None
    if not text.isascii() or not text.isdigit():
        raise refused(name, "must be a number, or none for no limit")
    return int(text)


def _heartbeat(at: str) -> tuple[Param, ...]:
    """Declare what wakes an agent, and how often; `at` is where the policy lies in the request."""

    def param(name: str, flag: str, help_text: str, read: Any = None) -> Param:
        path = f"{at}heartbeat.{name}"
        apply = None if read is None else _policy(path, read)
        return Param(path, help_text, flag=flag, apply=apply)

    return (
        param("timer_enabled", "--timer", "Whether a timer wakes it: true or false.", truth),
        param("timer_interval", "--timer-interval", "How often, such as 15m; 0 is never."),
        param(
            "skip_timer_without_work",
            "--timer-needs-work",
            "Whether the timer leaves it alone while no issue waits for it: true or false.",
            truth,
        ),
        param(
            "wake_on_demand",
            "--wake-on-demand",
            "Whether anything but the timer may wake it: true or false.",
            truth,
        ),
        param(
            "max_daily_runs",
            "--max-daily-runs",
            "Runs that may start on one UTC day: a number, or none for no limit.",
            _cap,
        ),
        param(
            "max_daily_cost_cents",
            "--max-daily-cost",
            "Cents that its runs may cost on one UTC day: a number, or none for no limit.",
            _cap,
        ),
        param(
            "cooldown",
            "--cooldown",
            "How long rules and timers wait after its last run, such as 5m.",
        ),
        param(
            "max_turn_continuations",
            "--max-turn-continuations",
            "How often a run that used up its turns is continued, 0 to 10.",
        ),
        param("max_turn_delay", "--max-turn-delay", "How long before it is continued, such as 1s."),
    )


def _settings(at: str) -> tuple[Param, ...]:
    """Declare the settings that can be given at first and changed later."""
    return (
        Param(
            f"{at}adapter_config",
            "The adapter's settings, a JSON object.",
            flag="--adapter-config",
            file=True,
        ),
        Param(f"{at}invocation_rule", "Who else may wake it.", flag="--invocation"),
        Param(
            f"{at}invocation_user_ids",
            "Of --invocation members: a member who may; may be repeated.",
            flag="--invocation-user",
        ),
        Param(
            f"{at}max_concurrent_runs",
            "How many runs it may have at once.",
            flag="--max-concurrent-runs",
        ),
        Param(
            f"{at}run_timeout",
            "How long a run may take, such as 1h; 0 is no limit.",
            flag="--run-timeout",
        ),
        Param(
            f"{at}idle_timeout",
            "How long a run may be silent, such as 15m; 0 is no limit.",
            flag="--idle-timeout",
        ),
        Param(
            f"{at}start_limit",
            "How long a run may wait for its start, such as 24h.",
            flag="--start-limit",
        ),
        Param(
            f"{at}manager_agent_id",
            "Its manager (nobody when empty).",
            flag="--manager",
            names=AGENT,
            clears=True,
        ),
        Param(
            f"{at}runtime_id",
            "Its runtime (heartbeat's own when empty).",
            flag="--runtime",
            names=RUNTIME,
            clears=True,
        ),
        *_heartbeat(at),
    )


NOUN = Noun(
    name="agents",
    help="Agents: what can be woken, by whom and how often.",
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
                # Before what is put into it.
                *_settings("")[:1],
                Param(
                    "adapter_config.command",
                    "Of the process adapter: the command line, split as a shell would.",
                    flag="--command",
                    apply=_command,
                ),
                Param(
                    "adapter_config.cwd",
                    "Of the process adapter: the working directory.",
                    flag="--cwd",
                    apply=_directory,
                ),
                Param(
                    "adapter_config.env",
                    "Of the process adapter: a variable, NAME=VALUE; may be repeated.",
                    flag="--env",
                    many=True,
                    apply=_environment,
                ),
                *_settings("")[1:],
                REQUEST_ID,
            ),
            shows="agent",
        ),
        Verb("list", "List the agents by name.", "ListAgents", (WORKSPACE,), shows="agents"),
        Verb("get", "Show an agent.", "GetAgent", (_ID,), shows="agent"),
        Verb(
            "update",
            "Change an agent, for its next runs; what is not named stays.",
            "UpdateAgent",
            (
                the("agent.agent_id", "The agent.", AGENT),
                Param("agent.name", "The name.", flag="--name"),
                Param("agent.adapter", "What runs it.", flag="--adapter"),
                Param("agent.owner_user_id", "The member who owns it.", flag="--owner"),
                *_settings("agent."),
                Param("agent.etag", ETAG.help, flag="--etag"),
            ),
            shows="agent",
            mask="agent",
            read="GetAgent",
        ),
        Verb(
            "pause",
            "Take no more work, and cancel what waits or is at work.",
            "PauseAgent",
            (_ID, why("agent"), ETAG),
            main="agent",
            note="Paused: it takes no work until `reveille agents resume`.",
        ),
        Verb("resume", "Take work again.", "ResumeAgent", (_ID, ETAG), shows="agent"),
        Verb(
            "archive",
            "Take no more work for ever, and cancel what waits or is at work.",
            "ArchiveAgent",
            (_ID, ETAG),
            main="agent",
            note="Archived: it takes no work any more.",
        ),
    ),
)
