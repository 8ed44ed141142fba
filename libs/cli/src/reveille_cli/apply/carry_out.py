"""Carrying a plan out, step by step; a refusal names the line of the file that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reveille_cli.apis import AGENTS, AUTOPILOTS, WORKSPACES, Api
from reveille_cli.apply.plan import Action, Change
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.stopping import deferred
from reveille_cli.apply.wanted import Wanted
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure
from reveille_cli.nouns.triggers import add_or_undo

_APIS: dict[str, tuple[Api, str]] = {
    "workspace": (WORKSPACES, "Workspace"),
    "agent": (AGENTS, "Agent"),
    "autopilot": (AUTOPILOTS, "Autopilot"),
    "trigger": (AUTOPILOTS, "Trigger"),
}


@dataclass(slots=True)
class Hook:
    """The address of a webhook that was made; it is shown only now."""

    autopilot: str
    trigger: str
    hook_path: str
    hook_url: str


@dataclass(slots=True)
class CarryOut:
    """Does what a plan says; knows the ids of what it made."""

    client: Client
    standing: Standing
    name: str
    # Those that are whole: one that awaits its secret has an address that nobody has seen.
    hooks: list[Hook] = field(default_factory=list)
    # Steps that turned out to change nothing.
    idle: list[Change] = field(default_factory=list)

    def __call__(self, changes: Sequence[Change]) -> None:
        """Do all steps in their order; the first refusal ends it, the rest is for next time.

        So does whoever asks it to stop: the step under way is done to its end, since the address of
        a hook that is made meanwhile is told to nobody else. Who insists gets no such care.
        """
        with deferred() as wish:
            for done, change in enumerate(changes):
                if wish.stop:
                    raise _interrupted("between two steps", done, changes)
                try:
                    self._do(change)
                except KeyboardInterrupt:
                    raise _interrupted(f"during {self._where(change)}", done, changes) from None
                except Failure as failure:
                    said = f"{failure.hint}; " if failure.hint else ""
                    failure.hint = (
                        f"{said}that is {self._where(change)}; {_progress(done, changes)}"
                    )
                    raise

    def _where(self, change: Change) -> str:
        return f"{change.wanted.kind.word} {change.wanted.name!r}, {self.name}:{change.wanted.line}"

    def _do(self, change: Change) -> None:
        wanted = change.wanted
        match change.action:
            case Action.CREATE | Action.UPDATE if wanted.kind.word == "member":
                self._put_member(wanted)
            case Action.CREATE:
                self._create(wanted)
            case Action.UPDATE:
                self._update(change)
            case Action.PAUSE:
                self._move("PauseAutopilot", wanted)
            case Action.RESUME:
                self._move("ResumeAutopilot", wanted)
            case Action.SEND_SECRETS:
                before = self.standing.things[wanted.key]
                self._send_update(wanted, before, ["adapter_config"])
                if self.standing.things[wanted.key].etag == before.etag:
                    self.idle.append(change)
            case Action.ADD_SECRET if change.current is None:
                # It came with its hook, which is never left without it.
                pass
            case Action.ADD_SECRET:
                trigger_id = self.standing.things[wanted.key].trigger_id
                request = AUTOPILOTS.request(
                    "AddSigningSecret", trigger_id=trigger_id, secret=wanted.secret
                )
                self.client.call(AUTOPILOTS, "AddSigningSecret", request)

    def _put_member(self, wanted: Wanted) -> None:
        request = WORKSPACES.request(
            "AddMember",
            workspace_id=self.standing.workspace_id,
            user_id=wanted.name,
            role=wanted.message.role,
        )
        self.client.call(WORKSPACES, "AddMember", request)

    def _create(self, wanted: Wanted) -> None:
        word = wanted.kind.word
        api, noun = _APIS[word]
        message = self._resolved(wanted)
        request = api.request(f"Create{noun}")
        known = {each.name for each in request.DESCRIPTOR.fields}
        for each, value in message.ListFields():
            if each.name in known:
                _copy(request, each.name, value)
        if word in {"agent", "autopilot"}:
            request.workspace_id = self.standing.workspace_id
        if word == "trigger":
            request.autopilot_id = self.standing.id_of("autopilot", wanted.parent)
            request.disabled = "enabled" in wanted.paths and not message.enabled
        answer = self.client.call(api, f"Create{noun}", request)
        made = getattr(answer, word)
        self.standing.things[wanted.key] = made
        if word == "workspace":
            self.standing.workspace_id = made.workspace_id
            self._set_what_create_cannot(wanted, made)
        if wanted.secret:
            add_or_undo(self.client, made.trigger_id, wanted.secret)
        if word == "trigger" and answer.hook_path:
            url = answer.hook_url or self.client.hooks_url(answer.hook_path)
            self.hooks.append(Hook(wanted.parent, wanted.name, answer.hook_path, url))

    def _set_what_create_cannot(self, wanted: Wanted, made: Any) -> None:
        """Set the rest of a new workspace: its creation knows no quota."""
        later = [each for each in wanted.paths if each in {"quota", "default_responsible_user_id"}]
        if later:
            self._send_update(wanted, made, later)

    def _update(self, change: Change) -> None:
        self._send_update(change.wanted, change.current, change.mask)

    def _send_update(self, wanted: Wanted, current: Any, paths: Sequence[str]) -> None:
        word = wanted.kind.word
        api, noun = _APIS[word]
        request = api.request(f"Update{noun}")
        thing = getattr(request, word)
        thing.CopyFrom(self._resolved(wanted))
        setattr(thing, f"{word}_id", getattr(current, f"{word}_id"))
        thing.etag = current.etag
        request.update_mask.paths.extend(paths)
        answer = self.client.call(api, f"Update{noun}", request)
        self.standing.things[wanted.key] = getattr(answer, word)

    def _move(self, rpc: str, wanted: Wanted) -> None:
        rule_id = self.standing.id_of("autopilot", wanted.name)
        self.client.call(AUTOPILOTS, rpc, AUTOPILOTS.request(rpc, autopilot_id=rule_id))

    def _resolved(self, wanted: Wanted) -> Any:
        """Put ids in the place of names, which may be those of things just made."""
        message = type(wanted.message)()
        message.CopyFrom(wanted.message)
        for path, (kind, name) in wanted.references.items():
            setattr(message, path, self.standing.id_of(kind, name) or name)
        return message


def _interrupted(where: str, done: int, changes: Sequence[Change]) -> Failure:
    return Failure(
        "interrupted",
        f"it was stopped {where}",
        ExitCode.INTERRUPTED,
        hint=_progress(done, changes),
    )


def _progress(done: int, changes: Sequence[Change]) -> str:
    return f"{done} of {len(changes)} steps are done, and apply goes on where it stopped"


def _copy(request: Any, name: str, value: Any) -> None:
    field_of_request = request.DESCRIPTOR.fields_by_name[name]
    if field_of_request.is_repeated:
        getattr(request, name).extend(value)
    elif field_of_request.message_type is not None:
        getattr(request, name).CopyFrom(value)
    else:
        setattr(request, name, value)
