"""What there is in a workspace, by the names that a file uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reveille.heartbeat.v1 import agent_pb2
from reveille_cli.apis import AGENTS, AUTOPILOTS, WORKSPACES, Api
from reveille_cli.connection import Client
from reveille_cli.failures import refused

_PAGE = 200
Key = tuple[str, str, str]


@dataclass(slots=True)
class Standing:
    """The things of one workspace as they are; nothing where it does not exist yet."""

    workspace_id: str = ""
    things: dict[Key, Any] = field(default_factory=dict)
    # How many triggers have no label, so that no file can name them.
    unnamed: int = 0

    def id_of(self, kind: str, name: str) -> str:
        """Give the id of an agent; empty when there is none of that name."""
        thing = self.things.get((kind, "", name))
        return "" if thing is None else str(getattr(thing, f"{kind}_id"))

    def is_over(self, agent: agent_pb2.Agent) -> bool:
        """Tell whether an agent is archived and no rule has it any more."""
        return agent.status == agent_pb2.AGENT_STATUS_ARCHIVED and all(
            thing.agent_id != agent.agent_id
            for (kind, _, _), thing in self.things.items()
            if kind == "autopilot"
        )

    def name_of_agent(self, agent_id: str) -> str:
        """Give the name of an agent; the id when it is not known."""
        for (kind, _, name), thing in self.things.items():
            if kind == "agent" and thing.agent_id == agent_id:
                return name
        return agent_id


def read_standing(client: Client, workspace: str) -> Standing:
    """Read what a workspace of this name holds. Refuses names that several things have."""
    found = Standing()
    for each in every(client, WORKSPACES, "ListWorkspaces", "workspaces"):
        if each.name == workspace:
            _keep(found, ("workspace", "", workspace), each)
            found.workspace_id = each.workspace_id
    if not found.workspace_id:
        return found
    where = {"workspace_id": found.workspace_id}
    for each in every(client, WORKSPACES, "ListMembers", "members", **where):
        _keep(found, ("member", "", each.user_id), each)
    for each in every(client, AGENTS, "ListAgents", "agents", **where):
        _keep(found, ("agent", "", each.name), each)
    for each in every(client, AUTOPILOTS, "ListAutopilots", "autopilots", **where):
        _keep(found, ("autopilot", "", each.title), each)
        _read_triggers(client, found, each)
    return found


def every(client: Client, api: Api, rpc: str, field_name: str, **where: str) -> Iterator[Any]:
    """Yield a whole list, page by page."""
    request = api.request(rpc, page_size=_PAGE, **where)
    while True:
        page = client.call(api, rpc, request)
        yield from getattr(page, field_name)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _read_triggers(client: Client, found: Standing, rule: Any) -> None:
    for each in every(
        client, AUTOPILOTS, "ListTriggers", "triggers", autopilot_id=rule.autopilot_id
    ):
        if each.label:
            _keep(found, ("trigger", rule.title, each.label), each)
        else:
            found.unnamed += 1


def read_hints(client: Client, trigger_id: str) -> set[str]:
    """Read the hints of a webhook's live secrets: four characters are all that shows."""
    request = AUTOPILOTS.request("ListSigningSecrets", trigger_id=trigger_id)
    answer = client.call(AUTOPILOTS, "ListSigningSecrets", request)
    now = datetime.now(UTC)
    return {
        each.hint
        for each in answer.signing_secrets
        if not each.HasField("expire_time") or each.expire_time.ToDatetime(tzinfo=UTC) > now
    }


def _keep(found: Standing, key: Key, thing: Any) -> None:
    if key in found.things:
        kind, parent, name = key
        of = f" of {parent!r}" if parent else ""
        raise refused(kind, f"there are several called {name!r}{of}; rename all but one first")
    found.things[key] = thing
