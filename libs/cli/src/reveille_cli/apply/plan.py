"""The plan: what has to be done so that things are as a file wants. Nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.message import Message

from reveille.autopilot.v1 import autopilot_pb2
from reveille.webhook.v1.endpoint_service_pb2 import EndpointOptions
from reveille_cli.apply import hook_options
from reveille_cli.apply.document import Problems
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.wanted import TRIGGER, Wanted
from reveille_cli.jsonform import plain

HIDDEN = "(hidden)"
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
            changes.append(Change(Action.CREATE, wanted, None, _as_new(wanted)))
        else:
            _refuse_fixed(wanted, current, found)
            if differences := _differences(wanted, current, standing):
                changes.append(Change(Action.UPDATE, wanted, current, differences))
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
        if before == after or (isinstance(before, str) and _same(path, before, after)):
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


def _same(path: str, before: str, after: str) -> bool:
    """Forgive what the service writes in its own way."""
    if path == "schedule.cron":
        return before.split() == after.split()
    return path == "schedule.time_zone" and (before or "UTC") == (after or "UTC")


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


def _secret(wanted: Wanted, current: Any, hints: Mapping[str, set[str]]) -> list[Change]:
    if not wanted.secret:
        return []
    known = set() if current is None else hints.get(current.trigger_id, set())
    if wanted.secret[-4:].decode(errors="replace") in known:
        return []
    return [Change(Action.ADD_SECRET, wanted, current)]


def _force(wanted: Wanted, current: Any) -> list[Change]:
    if wanted.paused is None:
        return []
    paused = current is not None and current.status == autopilot_pb2.AUTOPILOT_STATUS_PAUSED
    if paused is wanted.paused:
        return []
    return [Change(Action.PAUSE if wanted.paused else Action.RESUME, wanted, current)]
