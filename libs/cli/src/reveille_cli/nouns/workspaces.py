"""`reveille workspaces`: the tenants."""

from __future__ import annotations

from reveille_cli.apis import WORKSPACES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.names import WORKSPACE
from reveille_cli.nouns.shared import REQUEST_ID, the

NOUN = Noun(
    name="workspaces",
    help="Workspaces: everything belongs to exactly one.",
    api=WORKSPACES,
    verbs=(
        Verb(
            "create",
            "Create a workspace with its first owner.",
            "CreateWorkspace",
            (
                Param("name", "The display name.", argument=True),
                Param(
                    "issue_prefix",
                    "What its issues' names begin with: 2 to 8 capital letters.",
                    required=True,
                ),
                Param("owner_user_id", "The first owner; you when left out.", flag="--owner"),
                Param(
                    "attribution_fail_closed",
                    "Refuse runs for which nobody is accountable.",
                    flag="--fail-closed",
                ),
                REQUEST_ID,
            ),
            shows="workspace",
        ),
        Verb("list", "List the workspaces you may see.", "ListWorkspaces", (), shows="workspaces"),
        Verb(
            "get",
            "Show a workspace.",
            "GetWorkspace",
            (the("workspace_id", "The workspace, by id or name.", WORKSPACE),),
            shows="workspace",
        ),
    ),
)
