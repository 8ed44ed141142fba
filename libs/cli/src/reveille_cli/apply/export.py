"""A workspace as the document that `reveille apply` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reveille.autopilot.v1 import autopilot_pb2, workspace_service_pb2
from reveille_cli.apply import hook_options
from reveille_cli.apply.plan import get
from reveille_cli.apply.standing import Standing
from reveille_cli.apply.wanted import AGENT, AUTOPILOT, LISTED, TRIGGER, WORKSPACE, Kind
from reveille_cli.jsonform import is_empty, plain


def document_of(standing: Standing) -> dict[str, Any]:
    """Write everything down that a file can say; what is as it would be anyway is left out."""
    document: dict[str, Any] = {}
    (workspace,) = _of(standing, WORKSPACE)
    document[WORKSPACE.key] = _thing(WORKSPACE, workspace, standing)
    for kind in LISTED:
        things = []
        for thing in _of(standing, kind):
            if kind is AGENT and standing.is_over(thing):
                continue
            written = _thing(kind, thing, standing)
            if kind is AUTOPILOT:
                if thing.status == autopilot_pb2.AUTOPILOT_STATUS_PAUSED:
                    written["paused"] = True
                triggers = [
                    _thing(TRIGGER, trigger, standing)
                    for trigger in _of(standing, TRIGGER, thing.title)
                ]
                if triggers:
                    written[TRIGGER.key] = triggers
            things.append(written)
        if things:
            document[kind.key] = things
    return document


def _of(standing: Standing, kind: Kind, parent: str = "") -> Iterator[Any]:
    for (word, of, _), thing in sorted(standing.things.items()):
        if (word, of) == (kind.word, parent):
            yield thing


def _thing(kind: Kind, thing: Any, standing: Standing) -> dict[str, Any]:
    written: dict[str, Any] = {kind.identity: get(thing, kind.path)}
    shown = plain(thing)
    for setting in kind.settings:
        parts = setting.path.split(".")
        value: Any = shown
        for part in parts:
            value = None if value is None else value[part]
        if setting.names:
            value = standing.name_of_agent(value) if value else None
        if setting.path == "quota":
            value = _quota(thing.quota)
        if setting.path == "webhook.event_filters" and value is not None:
            value = [
                each["event"] + (":" + ",".join(each["actions"]) if each["actions"] else "")
                for each in value
            ]
        if setting.path == hook_options.PATH:
            value = hook_options.options_set(thing.webhook.options)
        # A trigger is switched on unless it says otherwise.
        if setting.path == "enabled":
            value = None if value else False
        if value is False and setting.path == "enabled":
            written[setting.key] = False
        elif not is_empty(value) and value is not False:
            written[setting.key] = value
    if kind is AGENT:
        written.setdefault("config", {})
    return written


def _quota(quota: workspace_service_pb2.QuotaPolicy) -> str | None:
    words = plain(quota)
    if words["action"] in {None, "off"}:
        return None
    return f"{words['action']}:{words['limit']}/{words['period']}"
