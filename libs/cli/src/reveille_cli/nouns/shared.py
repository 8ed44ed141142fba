"""Parameters that many verbs share."""

from __future__ import annotations

from reveille_cli.apis import WORKSPACES
from reveille_cli.connection import Client
from reveille_cli.declare import Param
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused

WORKSPACE_VARIABLE = "REVEILLE_WORKSPACE"


def only_workspace(client: Client) -> str:
    """Return the workspace there is, where there is just one that the caller may see."""
    request = WORKSPACES.request("ListWorkspaces", page_size=2)
    found = client.call(WORKSPACES, "ListWorkspaces", request).workspaces
    if not found:
        raise Failure(
            "not_found",
            "there is no workspace yet",
            ExitCode.NOT_FOUND,
            hint="create one with `reveille workspaces create`",
        )
    if len(found) > 1:
        raise refused(
            "workspace",
            f"there are several; name one with --workspace or {WORKSPACE_VARIABLE}",
            hint="`reveille workspaces list` shows them",
        )
    return str(found[0].workspace_id)


WORKSPACE = Param(
    "workspace_id",
    "The workspace; the only one there is when left out.",
    flag="--workspace",
    short="-w",
    variable=WORKSPACE_VARIABLE,
    fallback=only_workspace,
)
REQUEST_ID = Param(
    "request_id", "Makes the call repeatable: the same id again has no second effect."
)
ETAG = Param("etag", "Refuse if it was changed since it had this etag.")


def the(field: str, help_text: str) -> Param:
    """Declare the id a verb is about, given by position."""
    return Param(field, help_text, argument=True)


def only_of(field: str, flag: str, what: str) -> Param:
    """Declare a filter by an id."""
    return Param(field, f"Only of this {what}.", flag=flag)


def in_states(field: str, flag: str = "--state") -> Param:
    """Declare a filter by state."""
    return Param(field, "Only in this state; may be repeated.", flag=flag)
