"""Names for ids: a workspace's name, an agent's or a project's, an autopilot's title.

An id goes to the service as it is, and so does an issue's identifier. Anything else is looked up in
the lists that the caller may see, page by page, and must mean one thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reveille_cli.apis import AGENTS, AUTOPILOTS, ISSUES, WORKSPACES, Api
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused

WORKSPACE_VARIABLE = "REVEILLE_WORKSPACE"
_PAGE = 200
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[A-Z][A-Z0-9]{0,9}-[1-9][0-9]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Naming:
    """A kind of thing that has a name beside its id.

    Attributes:
        what: The thing in words; also, with an s, the noun and the list's field.
        name: The field that names it.
        unique: Whether a workspace has a name once at most, so that the first match is the one.
    """

    what: str
    api: Api
    rpc: str
    name: str
    unique: bool = True

    @property
    def listed(self) -> str:
        """The field of the list, and the command's noun."""
        return f"{self.what}s"

    def id_of(self, thing: Any) -> str:
        """Return the id of a thing of this kind."""
        return str(getattr(thing, f"{self.what}_id"))


WORKSPACE = Naming("workspace", WORKSPACES, "ListWorkspaces", "name", unique=False)
AGENT = Naming("agent", AGENTS, "ListAgents", "name")
AUTOPILOT = Naming("autopilot", AUTOPILOTS, "ListAutopilots", "title", unique=False)
PROJECT = Naming("project", ISSUES, "ListProjects", "name")
SQUAD = Naming("squad", AGENTS, "ListSquads", "name")
RUNTIME = Naming("runtime", AGENTS, "ListRuntimes", "name")
ISSUE = Naming("issue", ISSUES, "ListIssues", "identifier")


def is_id(text: str) -> bool:
    """Tell whether a text is an id, in the spelling that the services take."""
    return _ID.fullmatch(text) is not None


def is_identifier(text: str) -> bool:
    """Tell whether a text looks like an issue's identifier, such as ACME-3."""
    return _IDENTIFIER.fullmatch(text) is not None


def find_id(client: Client, naming: Naming, text: str, workspace: str | None, field: str) -> str:
    """Return the id that a text is or stands for; `field` names the text in a refusal."""
    if is_id(text):
        return text
    if naming is WORKSPACE:
        return _only(client, naming, text, field)
    if naming is ISSUE:
        # The service knows identifiers itself.
        if is_identifier(text):
            return text
        raise _unknown(ISSUE, text)
    where = find_workspace(client, workspace)
    return _only(client, naming, text, field, workspace_id=where)


def find_issue(client: Client, identifier: str) -> str:
    """Return the id of the issue that has an identifier."""
    request = ISSUES.request("GetIssue", issue_id=identifier)
    return str(client.call(ISSUES, "GetIssue", request).issue.issue_id)


def find_workspace(client: Client, text: str | None) -> str:
    """Return the workspace of a name or id; the only one that the caller may see when left out."""
    if text:
        return find_id(client, WORKSPACE, text, None, "workspace")
    request = WORKSPACES.request("ListWorkspaces", page_size=2)
    found = client.call(WORKSPACES, "ListWorkspaces", request).workspaces
    if not found:
        raise Failure(
            "not_found",
            "there is no workspace that you may see",
            ExitCode.NOT_FOUND,
            hint="make one with `reveille workspaces create`, or have its owner add you with"
            " `reveille members add`",
        )
    if len(found) > 1:
        raise refused(
            "workspace",
            f"there are several; name one with --workspace or {WORKSPACE_VARIABLE}",
            hint="`reveille workspaces list` shows them",
        )
    return str(found[0].workspace_id)


def _only(client: Client, naming: Naming, text: str, field: str, **where: str) -> str:
    matches: list[str] = []
    for thing in _listed(client, naming, **where):
        if getattr(thing, naming.name) == text:
            matches.append(naming.id_of(thing))
            if naming.unique:
                break
    if not matches:
        raise _unknown(naming, text)
    if len(matches) > 1:
        raise refused(
            field,
            f"{len(matches)} {naming.listed} have the {naming.name} {text}: give an id of "
            + ", ".join(matches[:5]),
        )
    return matches[0]


def _listed(client: Client, naming: Naming, **where: str) -> Iterator[Any]:
    request = naming.api.request(naming.rpc, page_size=_PAGE, **where)
    while True:
        page = client.call(naming.api, naming.rpc, request)
        yield from getattr(page, naming.listed)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _unknown(naming: Naming, text: str) -> Failure:
    article = "an" if naming.what[0] in "aeiou" else "a"
    return Failure(
        "not_found",
        f"{text!r} is neither the id nor the {naming.name} of {article} {naming.what}"
        " that you may see",
        ExitCode.NOT_FOUND,
        hint=f"see `reveille {naming.listed} list`",
    )
