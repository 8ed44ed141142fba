"""Requests about agents as the domain's values, with everything that is wrong reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from reveille.heartbeat.v1 import agent_pb2 as pb
from reveille_heartbeat.domain.agents import AgentEdit, AgentSettings
from reveille_heartbeat.domain.values import HeartbeatPolicy
from reveille_heartbeat.rpc import parse
from reveille_heartbeat.rpc.show_agents import INVOCATION_RULES
from reveille_runtime.masks import read_mask
from reveille_runtime.validation import Violations

RUN_TIMEOUT = timedelta(hours=1)
IDLE_TIMEOUT = timedelta(minutes=15)
START_LIMIT = timedelta(hours=24)
TURN_DELAY = timedelta(seconds=1)
_SECOND = timedelta(seconds=1)
_LONGEST_START = timedelta(days=30)
_LONGEST_TURN_DELAY = timedelta(minutes=5)
_MAX_USERS = 1_000
_MAX_COUNT = (1 << 31) - 1
_MAX_CENTS = (1 << 53) - 1
POLICY = (
    "timer_enabled",
    "timer_interval",
    "skip_timer_without_work",
    "wake_on_demand",
    "max_daily_runs",
    "max_daily_cost_cents",
    "cooldown",
    "max_turn_continuations",
    "max_turn_delay",
)
_HEARTBEAT = "heartbeat."
EDITABLE = (
    "name",
    "adapter",
    "adapter_config",
    "invocation_rule",
    "invocation_user_ids",
    "owner_user_id",
    "max_concurrent_runs",
    "run_timeout",
    "idle_timeout",
    "start_limit",
    "manager_agent_id",
    "runtime_id",
    *(f"{_HEARTBEAT}{name}" for name in POLICY),
)


def settings(found: Violations, request: pb.CreateAgentRequest, owner: str) -> AgentSettings:
    """Parse the settings of a new agent."""
    return AgentSettings(
        **{name: parse_field(found, "", request) for name, parse_field in _FIELDS.items()},
        owner_user_id=owner,
        heartbeat=policy(found, "heartbeat", request.heartbeat),
    )


def edit(found: Violations, request: pb.UpdateAgentRequest) -> AgentEdit:
    """Parse the new values of what the mask names."""
    agent = request.agent
    paths = read_mask(found, request.update_mask, EDITABLE)
    values = {
        name: parse_field(found, "agent.", agent)
        for name, parse_field in _FIELDS.items()
        if name in paths
    }
    if "owner_user_id" in paths:
        values["owner_user_id"] = found.text(
            "agent.owner_user_id", agent.owner_user_id, minimum=1, maximum=128
        )
    names = {path.removeprefix(_HEARTBEAT) for path in paths if path.startswith(_HEARTBEAT)}
    parsed = policy(found, "agent.heartbeat", agent.heartbeat, names)
    return AgentEdit(values, {name: getattr(parsed, name) for name in names})


def policy(
    found: Violations,
    field: str,
    message: pb.HeartbeatPolicy,
    names: Sequence[str] | set[str] = POLICY,
) -> HeartbeatPolicy:
    """Parse what wakes an agent; what is not among the names keeps its default unread."""
    parsers: dict[str, Any] = {
        "timer_enabled": lambda: message.timer_enabled,
        "timer_interval": lambda: _interval(found, f"{field}.timer_interval", message),
        "skip_timer_without_work": lambda: message.skip_timer_without_work,
        "wake_on_demand": lambda: _given(message, "wake_on_demand", default=True),
        "max_daily_runs": lambda: _cap(found, field, message, "max_daily_runs", _MAX_COUNT),
        "max_daily_cost_cents": lambda: _cap(
            found, field, message, "max_daily_cost_cents", _MAX_CENTS
        ),
        "cooldown": lambda: found.duration(f"{field}.cooldown", message.cooldown),
        "max_turn_continuations": lambda: found.integer(
            f"{field}.max_turn_continuations",
            _given(message, "max_turn_continuations", default=2),
            minimum=0,
            maximum=10,
        ),
        "max_turn_delay": lambda: (
            found.duration(
                f"{field}.max_turn_delay", message.max_turn_delay, maximum=_LONGEST_TURN_DELAY
            )
            if message.HasField("max_turn_delay")
            else TURN_DELAY
        ),
    }
    return HeartbeatPolicy(**{name: parsers[name]() for name in names})


def _given(message: pb.HeartbeatPolicy, name: Any, *, default: Any) -> Any:
    return getattr(message, name) if message.HasField(name) else default


def _cap(
    found: Violations, field: str, message: pb.HeartbeatPolicy, name: Any, maximum: int
) -> int | None:
    if not message.HasField(name):
        return None
    return found.integer(f"{field}.{name}", getattr(message, name), minimum=0, maximum=maximum)


def _interval(found: Violations, field: str, message: pb.HeartbeatPolicy) -> timedelta:
    interval = found.duration(field, message.timer_interval)
    if timedelta(0) < interval < _SECOND:
        found.add(field, "must be 0 (no timer) or at least 1 second", "OUT_OF_BOUNDS")
    return interval


def _users(found: Violations, at: str, its: Any) -> tuple[str, ...]:
    field = f"{at}invocation_user_ids"
    if len(its.invocation_user_ids) > _MAX_USERS:
        found.add(field, f"has more than {_MAX_USERS} entries")
    return tuple(
        found.text(f"{field}[{number}]", user, minimum=1, maximum=128)
        for number, user in enumerate(its.invocation_user_ids)
    )


def _start_limit(found: Violations, at: str, its: Any) -> timedelta:
    if not its.HasField("start_limit"):
        return START_LIMIT
    return found.duration(
        f"{at}start_limit", its.start_limit, minimum=_SECOND, maximum=_LONGEST_START
    )


def _time_limit(name: str, default: timedelta) -> Any:
    def read(found: Violations, at: str, its: Any) -> timedelta:
        if not its.HasField(name):
            return default
        return found.duration(f"{at}{name}", getattr(its, name), maximum=parse.LONGEST)

    return read


# By the names that the settings share with both messages; `at` is where the message lies.
_FIELDS: dict[str, Any] = {
    "name": lambda found, at, its: found.text(f"{at}name", its.name, minimum=1, maximum=100),
    "adapter": lambda found, at, its: found.text(
        f"{at}adapter", its.adapter, minimum=1, maximum=100
    ),
    "adapter_config": lambda found, at, its: parse.settings(
        found, f"{at}adapter_config", its.adapter_config
    ),
    "invocation_rule": lambda found, at, its: found.enum(
        f"{at}invocation_rule",
        its.invocation_rule or pb.INVOCATION_RULE_WORKSPACE,
        INVOCATION_RULES,
    ),
    "invocation_user_ids": _users,
    "max_concurrent_runs": lambda found, at, its: found.integer(
        f"{at}max_concurrent_runs", its.max_concurrent_runs or 1, minimum=1, maximum=50
    ),
    "run_timeout": _time_limit("run_timeout", RUN_TIMEOUT),
    "idle_timeout": _time_limit("idle_timeout", IDLE_TIMEOUT),
    "start_limit": _start_limit,
    "manager_agent_id": lambda found, at, its: found.optional_uuid(
        f"{at}manager_agent_id", its.manager_agent_id
    ),
    "runtime_id": lambda found, at, its: found.optional_uuid(f"{at}runtime_id", its.runtime_id),
}
