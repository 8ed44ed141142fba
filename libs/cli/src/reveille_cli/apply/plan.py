"""The plan: what has to be done so that things are as a file wants. Nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.message import Message

from reveille.autopilot.v1 import autopilot_pb2
from reveille.heartbeat.v1 import agent_pb2
from reveille.webhook.v1.endpoint_service_pb2 import EndpointOptions
from reveille_cli.apply import hook_options
from reveille_cli.apply.document import Problems
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.wanted import AGENT, TRIGGER, Wanted
from reveille_cli.jsonform import plain

HIDDEN = "(hidden)"
_CONFIG = "adapter_config"
# Rules of the services that no answer of theirs tells; tests hold them to these. What a zero is
# taken for, what stands for a secret of an agent, and how much of a signing secret is shown.
USUAL: Mapping[str, int] = {"webhook.max_body_bytes": 262_144, "max_concurrent_runs": 1}
MASKED = "********"
_HINT = 4
# What a new thing cannot do without, by path, as a file calls it.
_NEEDED: Mapping[str, Mapping[str, str]] = {
    "workspace": {"issue_prefix": "issuePrefix"},
    "agent": {"adapter": "adapter"},
}
# What cannot be changed once a thing is there.
_FIXED: Mapping[str, Sequence[str]] = {
    "workspace": ("issue_prefix",),
    "trigger": ("webhook.provider",),
}


class Action(StrEnum):
    """What is done to a thing."""

    CREATE = "create"
    UPDATE = "update"
    PAUSE = "pause"
    RESUME = "resume"
    ADD_SECRET = "add_secret"  # noqa: S105 - the name of an action
    # Secrets of an agent that nobody is shown: only the service can tell whether they differ.
    SEND_SECRETS = "send_secrets"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs, in the words of the contracts."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Change:
    """One step."""

    action: Action
    wanted: Wanted
    current: Any = None
    differences: tuple[Difference, ...] = ()

    @property
    def mask(self) -> list[str]:
        """Give the fields that differ as an update names them: options only all at once."""
        differing = [each.path for each in self.differences]
        return [
            path
            for path in self.wanted.paths
            if any(each == path or each.startswith(f"{path}.") for each in differing)
        ]

    def document(self) -> dict[str, Any]:
        """Give the step as JSON."""
        return {
            "action": self.action.value,
            "kind": self.wanted.kind.word,
            "name": self.wanted.name,
            "autopilot": self.wanted.parent or None,
            "line": self.wanted.line,
            "differences": {
                each.path: {"before": each.before, "after": each.after} for each in self.differences
            },
        }


def make_plan(
    things: Sequence[Wanted], standing: Standing, hints: Mapping[str, set[str]], found: Problems
) -> list[Change]:
    """Compare; what a file names and is so already needs no step."""
    changes: list[Change] = []
    for wanted in things:
        current = standing.things.get(wanted.key)
        _check_references(wanted, things, standing, found)
        if current is None:
            _refuse_masks(wanted, found)
            _require(wanted, found)
            changes.append(Change(Action.CREATE, wanted, None, _as_new(wanted)))
        else:
            _refuse_fixed(wanted, current, found)
            steps: list[Change] = []
            if differences := _differences(wanted, current, standing):
                steps.append(Change(Action.UPDATE, wanted, current, differences))
            if _has_unseen(wanted, current):
                steps.append(Change(Action.SEND_SECRETS, wanted, current))
            if wanted.kind is AGENT and (steps or standing.is_over(current)):
                _refuse_archived(wanted, current, found)
            changes += steps
        changes += _secret(wanted, current, hints) + _force(wanted, current)
    found.check()
    return changes


def get(message: Any, path: str) -> Any:
    """Read a field by its dotted path."""
    for name in path.split("."):
        message = getattr(message, name)
    return message


def _differences(wanted: Wanted, current: Any, standing: Standing) -> tuple[Difference, ...]:
    found = []
    for path in wanted.paths:
        if path in wanted.references:
            kind, name = wanted.references[path]
            before = get(current, path)
            if before != (standing.id_of(kind, name) or name):
                found.append(Difference(path, standing.name_of_agent(before), name))
            continue
        if path == hook_options.PATH:
            found += _options(wanted, get(current, path))
            continue
        before, after = get(current, path), get(wanted.message, path)
        if (
            before == after
            or _same(path, before, after)
            or (path == _CONFIG and _has_unseen(wanted, current))
        ):
            continue
        if path in wanted.hidden:
            found.append(Difference(path, HIDDEN, HIDDEN))
        else:
            found.append(Difference(path, _shown(current, path), _shown(wanted.message, path)))
    return tuple(found)


def _options(wanted: Wanted, before: EndpointOptions) -> list[Difference]:
    """Compare the options of a hook one by one."""
    path = hook_options.PATH
    differing = list(hook_options.differing(before, get(wanted.message, path)))
    if differing and path in wanted.hidden:
        return [Difference(path, HIDDEN, HIDDEN)]
    return [Difference(f"{path}.{name}", old, new) for name, old, new in differing]


def _same(path: str, before: Any, after: Any) -> bool:
    """Forgive what the service writes in its own way."""
    if path == "schedule.cron":
        return bool(before.split() == after.split())
    if path in USUAL:
        return bool((before or USUAL[path]) == (after or USUAL[path]))
    return path == "schedule.time_zone" and (before or "UTC") == (after or "UTC")


def _has_unseen(wanted: Wanted, current: Any) -> bool:
    """Tell whether the settings of an agent are the same but for secrets that are not shown."""
    if _CONFIG not in wanted.paths:
        return False
    before, after = plain(current)[_CONFIG] or {}, plain(wanted.message)[_CONFIG] or {}
    shown, given = before.get("env"), after.get("env")
    if not isinstance(shown, Mapping) or not isinstance(given, Mapping):
        return False
    unseen = {
        name: MASKED
        for name, value in given.items()
        if shown.get(name) == MASKED and value != MASKED
    }
    return bool(unseen) and before == {**after, "env": {**given, **unseen}}


def _as_new(wanted: Wanted) -> tuple[Difference, ...]:
    shown: list[Difference] = []
    for path in wanted.paths:
        if path == hook_options.PATH and path not in wanted.hidden:
            shown += _options(wanted, EndpointOptions())
            continue
        after: Any = HIDDEN
        if path in wanted.references:
            after = wanted.references[path][1]
        elif path not in wanted.hidden:
            after = _shown(wanted.message, path)
        shown.append(Difference(path, None, after))
    return tuple(shown)


def _shown(message: Message, path: str) -> Any:
    value: Any = plain(message)
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


def _check_references(
    wanted: Wanted, things: Sequence[Wanted], standing: Standing, found: Problems
) -> None:
    made = {(each.kind.word, each.name) for each in things}
    for kind, name in wanted.references.values():
        if (kind, name) not in made and not standing.id_of(kind, name):
            found.add(
                wanted.line, f"{wanted.kind.word} {wanted.name!r}: there is no {kind} {name!r}"
            )


def _require(wanted: Wanted, found: Problems) -> None:
    """Note what a thing that is there may leave out of the file, and a new one may not."""
    for path, key in _NEEDED.get(wanted.kind.word, {}).items():
        if path not in wanted.paths:
            found.add(wanted.line, f"{wanted.kind.word} {wanted.name!r} is new: {key} is missing")


def _refuse_masks(wanted: Wanted, found: Problems) -> None:
    """Refuse what an export writes for a secret where there is none that it could stand for."""
    if _CONFIG not in wanted.paths:
        return
    env = (plain(wanted.message)[_CONFIG] or {}).get("env")
    for name, value in env.items() if isinstance(env, Mapping) else ():
        if value == MASKED:
            found.add(
                wanted.line,
                f"agent {wanted.name!r}: {name} is how a secret is shown; name the secret itself"
                " with fromEnv or fromFile",
            )


def _refuse_fixed(wanted: Wanted, current: Any, found: Problems) -> None:
    where = f"{wanted.kind.word} {wanted.name!r}"
    if wanted.kind is TRIGGER:
        kinds = [each.WhichOneof("kind") for each in (current, wanted.message)]
        if kinds[0] != kinds[1]:
            found.add(wanted.line, f"{where} is a {kinds[0]}; delete it, or use another label")
            return
    for path in _FIXED.get(wanted.kind.word, ()):
        if path in wanted.paths and get(wanted.message, path) != get(current, path):
            found.add(wanted.line, f"{where}: {path} is {get(current, path)} and stays so")


def _refuse_archived(wanted: Wanted, current: agent_pb2.Agent, found: Problems) -> None:
    if current.status == agent_pb2.AGENT_STATUS_ARCHIVED:
        found.add(
            wanted.line,
            f"agent {wanted.name!r} is archived and stays so; take another name for a new one",
        )


def _secret(wanted: Wanted, current: Any, hints: Mapping[str, set[str]]) -> list[Change]:
    if not wanted.secret:
        return []
    known = set() if current is None else hints.get(current.trigger_id, set())
    # Its hint is made as the gateway makes it.
    end = wanted.secret.decode(errors="replace")[-_HINT:]
    if "".join(each if each.isprintable() else "?" for each in end) in known:
        return []
    return [Change(Action.ADD_SECRET, wanted, current)]


def _force(wanted: Wanted, current: Any) -> list[Change]:
    if wanted.paused is None:
        return []
    paused = current is not None and current.status == autopilot_pb2.AUTOPILOT_STATUS_PAUSED
    if paused is wanted.paused:
        return []
    return [Change(Action.PAUSE if wanted.paused else Action.RESUME, wanted, current)]
