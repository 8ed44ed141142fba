"""What a file wants: things as messages of the contracts, with the fields that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError

from reveille.autopilot.v1 import autopilot_pb2, workspace_service_pb2
from reveille.heartbeat.v1 import agent_pb2
from reveille_cli.apply import hook_options
from reveille_cli.apply.document import Node, Problems, from_elsewhere
from reveille_cli.failures import Failure
from reveille_cli.nouns.secrets import SECRET_BYTES
from reveille_cli.nouns.triggers import listen
from reveille_cli.nouns.workspaces import read_quota
from reveille_cli.values import assign, field_of
from reveille_cron import CronError, Schedule, parse, zone

Reader = Callable[[Problems, Node, Any], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of a thing: its key in the file, and its path in the message."""

    key: str
    path: str
    read: Reader | None = None
    # Names another thing, by the kind of that.
    names: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing, and what a file may say of it beside the key that identifies it."""

    word: str
    key: str
    message: Callable[[], Any]
    settings: tuple[Setting, ...]
    identity: str = "name"
    path: str = "name"
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A thing as the file wants it."""

    kind: Kind
    name: str
    line: int
    message: Any
    # The paths that the file names; the others are left as they are.
    paths: tuple[str, ...]
    # Paths whose value is the id of another thing of the file, or of the workspace.
    references: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # Paths whose value is not shown.
    hidden: frozenset[str] = frozenset()
    # The autopilot of a trigger.
    parent: str = ""
    paused: bool | None = None
    secret: bytes = field(default=b"", repr=False)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in its workspace."""
        return self.kind.word, self.parent, self.name


def _flag(key: str, path: str) -> Setting:
    def read(found: Problems, node: Node, message: Any) -> None:
        setattr(message, path, found.truth(node, key))

    return Setting(key, path, read)


def _quota(found: Problems, node: Node, message: Any) -> None:
    # YAML reads a bare `off` as false.
    text = "off" if node.value is False else found.text(node, "quota")
    read_quota(message.quota, text, "quota")


def _settings(found: Problems, node: Node, message: Any) -> None:
    if not isinstance(node.value, Mapping):
        found.add(node.line, "config must have fields")
        return
    ParseDict(found.settings(node, "config"), message.adapter_config)


def _people(key: str, path: str) -> Setting:
    def read(found: Problems, node: Node, message: Any) -> None:
        users = {found.text(each, key).strip() for each in found.items(node, key)}
        getattr(message, path).extend(sorted(users))

    return Setting(key, path, read)


def _events(found: Problems, node: Node, message: Any) -> None:
    listen(message.webhook, [found.text(each, "events") for each in found.items(node, "events")])


def _cron(found: Problems, node: Node, message: Any) -> None:
    """Read an expression by the evaluator that the services use."""
    message.schedule.cron = found.text(node, "cron")
    try:
        Schedule(parse(message.schedule.cron), zone("UTC")).require_firing(datetime.now(UTC))
    except CronError as error:
        part = "" if error.field == "expression" else f" {error.field}:"
        found.add(node.line, f"cron:{part} {error.message}; {error.hint}")


def _time_zone(found: Problems, node: Node, message: Any) -> None:
    message.schedule.time_zone = found.text(node, "timeZone").strip()
    try:
        zone(message.schedule.time_zone or "UTC")
    except CronError as error:
        found.add(node.line, f"timeZone: {error.message}; {error.hint}")


WORKSPACE = Kind(
    "workspace",
    "workspace",
    workspace_service_pb2.Workspace,
    (
        Setting("issuePrefix", "issue_prefix"),
        _flag("failClosed", "attribution_fail_closed"),
        Setting("quota", "quota", _quota),
        Setting("responsible", "default_responsible_user_id"),
    ),
)
MEMBER = Kind(
    "member",
    "members",
    workspace_service_pb2.Member,
    (Setting("role", "role"),),
    identity="user",
    path="user_id",
)
AGENT = Kind(
    "agent",
    "agents",
    agent_pb2.Agent,
    (
        Setting("adapter", "adapter"),
        Setting("config", "adapter_config", _settings),
        Setting("invocation", "invocation_rule"),
        _people("invokers", "invocation_user_ids"),
        Setting("maxConcurrentRuns", "max_concurrent_runs"),
        Setting("runTimeout", "run_timeout"),
        Setting("idleTimeout", "idle_timeout"),
    ),
)
AUTOPILOT = Kind(
    "autopilot",
    "autopilots",
    autopilot_pb2.Autopilot,
    (
        Setting("agent", "agent_id", names="agent"),
        Setting("squad", "squad_id"),
        Setting("project", "project_id"),
        Setting("mode", "execution_mode"),
        Setting("prompt", "prompt"),
        Setting("issueTitle", "issue_title_template"),
        Setting("overlap", "overlap_policy"),
        _people("subscribers", "subscriber_user_ids"),
    ),
    identity="title",
    path="title",
    more=("triggers", "paused"),
)
TRIGGER = Kind(
    "trigger",
    "triggers",
    autopilot_pb2.Trigger,
    (
        Setting("cron", "schedule.cron", _cron),
        Setting("at", "schedule.run_at"),
        Setting("timeZone", "schedule.time_zone", _time_zone),
        Setting("provider", "webhook.provider"),
        Setting("events", "webhook.event_filters", _events),
        Setting("maxBodyBytes", "webhook.max_body_bytes"),
        Setting(hook_options.KEY, hook_options.PATH, hook_options.read_options),
        _flag("enabled", "enabled"),
    ),
    identity="label",
    path="label",
    more=("signingSecret",),
)
LISTED = (MEMBER, AGENT, AUTOPILOT)


def read_wanted(root: Node, found: Problems) -> list[Wanted]:
    """Read what a file wants, in the order in which it can be made; refuses a wrong file."""
    top = found.mapping(root, "the file", [WORKSPACE.key, *(kind.key for kind in LISTED)])
    things: list[Wanted] = []
    if WORKSPACE.key in top:
        things.append(_thing(WORKSPACE, top[WORKSPACE.key], found))
    else:
        found.add(root.line, "workspace is missing")
    for kind in LISTED:
        for node in found.items(top.get(kind.key), kind.key):
            thing = _thing(kind, node, found)
            things.append(thing)
            if kind is AUTOPILOT and isinstance(node.value, Mapping):
                things.extend(
                    _thing(TRIGGER, trigger, found, thing.name)
                    for trigger in found.items(node.value.get(TRIGGER.key), TRIGGER.key)
                )
    _refuse_twins(things, found)
    found.check()
    return things


def _thing(kind: Kind, node: Node, found: Problems, parent: str = "") -> Wanted:
    known = [kind.identity, *(each.key for each in kind.settings), *kind.more]
    given = found.mapping(node, kind.word, known)
    message = kind.message()
    name = ""
    if kind.identity in given:
        name = found.text(given[kind.identity], kind.identity).strip()
    if not name:
        found.add(node.line, f"{kind.word}: {kind.identity} is missing")
    setattr(message, kind.path, name)
    paths: list[str] = []
    references: dict[str, tuple[str, str]] = {}
    hidden: set[str] = set()
    for setting in kind.settings:
        if setting.key not in given:
            continue
        value = given[setting.key]
        paths.append(setting.path)
        if from_elsewhere(value) and setting.path != "prompt":
            hidden.add(setting.path)
        if setting.names:
            references[setting.path] = (setting.names, found.text(value, setting.key).strip())
            continue
        _set(found, setting, value, message)
    _judge(kind, given, node, found)
    return Wanted(
        kind,
        name,
        node.line,
        message,
        tuple(paths),
        references,
        frozenset(hidden),
        parent,
        found.truth(given["paused"], "paused") if "paused" in given else None,
        _secret(given.get("signingSecret"), found),
    )


def _set(found: Problems, setting: Setting, value: Node, message: Any) -> None:
    try:
        if setting.read is not None:
            setting.read(found, value, message)
        elif field_of(message.DESCRIPTOR, setting.path).type == FieldDescriptor.TYPE_INT32:
            assign(message, setting.path, found.number(value, setting.key), setting.key)
        else:
            known = len(found.found)
            text = found.text(value, setting.key)
            # The services do the same; a file that says otherwise would differ for ever.
            text = text if setting.path == "prompt" else text.strip()
            # What is no text has been told, and is no wrong one besides.
            if len(found.found) == known:
                assign(message, setting.path, text, setting.key)
    except Failure as failure:
        found.add(value.line, failure.message)
    except (TypeError, ValueError, ParseError) as error:
        found.add(value.line, f"{setting.key}: {error}")


def _judge(kind: Kind, given: Mapping[str, Node], node: Node, found: Problems) -> None:
    """Note what only the whole of a thing shows."""
    if kind is TRIGGER:
        sources = [each for each in ("cron", "at", "provider") if each in given]
        if len(sources) != 1:
            found.add(node.line, "trigger: give exactly one of cron, at and provider")
        clock, post = {"timeZone"}, {"events", "maxBodyBytes", "options", "signingSecret"}
        wrong = clock if "provider" in given else post
        for key in sorted(wrong & given.keys()):
            found.add(given[key].line, f"trigger: {key} does not go with {' '.join(sources)}")
    if kind is AUTOPILOT and ("agent" in given) == ("squad" in given):
        found.add(node.line, "autopilot: give exactly one of agent and squad")
    needed: Mapping[str, Sequence[str]] = {"member": ("role",), "autopilot": ("mode", "prompt")}
    for key in needed.get(kind.word, ()):
        if key not in given:
            found.add(node.line, f"{kind.word}: {key} is missing")


def _secret(node: Node | None, found: Problems) -> bytes:
    if node is None:
        return b""
    if not from_elsewhere(node):
        found.add(node.line, "signingSecret: a file holds no secrets; use fromEnv or fromFile")
        return b""
    secret = found.text(node, "signingSecret").encode()
    if secret and len(secret) not in SECRET_BYTES:
        found.add(
            node.line, f"signingSecret: must have {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes"
        )
    return secret


def _refuse_twins(things: Sequence[Wanted], found: Problems) -> None:
    seen: dict[tuple[str, str, str], int] = {}
    for each in things:
        if each.name and each.key in seen:
            found.add(
                each.line, f"{each.kind.word} {each.name!r} stands in line {seen[each.key]} too"
            )
        seen.setdefault(each.key, each.line)
