"""`reveille members`: who belongs to a workspace."""

from __future__ import annotations

from reveille_cli.apis import WORKSPACES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.nouns.shared import REQUEST_ID, WORKSPACE, the

NOUN = Noun(
    name="members",
    help="Members of a workspace and their roles.",
    api=WORKSPACES,
    verbs=(
        Verb(
            "add",
            "Add a member, or change the role of one.",
            "AddMember",
            (
                the("user_id", "The user, as the identity provider names them."),
                Param("role", "The role.", required=True),
                WORKSPACE,
                REQUEST_ID,
            ),
            shows="member",
        ),
        Verb("list", "List the members.", "ListMembers", (WORKSPACE,), shows="members"),
        Verb(
            "update",
            "Change the role of a member.",
            "UpdateMember",
            (the("user_id", "The member."), Param("role", "The role.", required=True), WORKSPACE),
            shows="member",
        ),
        Verb(
            "remove",
            "Remove a member; what they published goes on, in another's name.",
            "RemoveMember",
            (the("user_id", "The member."), WORKSPACE),
            note="Removed.",
        ),
    ),
)
