"""Parameters that many verbs share."""

from __future__ import annotations

from reveille_cli import names
from reveille_cli.declare import Param
from reveille_cli.failures import refused
from reveille_cli.names import Naming

WORKSPACE = Param(
    "workspace_id",
    "The workspace, by id or name; the only one there is when left out.",
    flag="--workspace",
    short="-w",
    variable=names.WORKSPACE_VARIABLE,
    names=names.WORKSPACE,
    fallback=lambda client: names.find_workspace(client, None),
)
REQUEST_ID = Param(
    "request_id", "Makes the call repeatable: the same id again has no second effect."
)
ETAG = Param("etag", "Refuse if it was changed since it had this etag.")


def truth(text: str, name: str) -> bool:
    """Read true or false."""
    if text not in {"true", "false"}:
        raise refused(name, "must be true or false")
    return text == "true"


def the(field: str, help_text: str, names: Naming | None = None) -> Param:
    """Declare the id a verb is about, given by position and called by its own name."""
    own = field.rpartition(".")[2]
    return Param(field, help_text, flag=own, argument=True, names=names)


def only_of(field: str, flag: str, what: str, names: Naming | None = None) -> Param:
    """Declare a filter by an id."""
    return Param(field, f"Only of this {what}.", flag=flag, names=names)


def in_states(field: str, flag: str = "--state") -> Param:
    """Declare a filter by state."""
    return Param(field, "Only in this state; may be repeated.", flag=flag)


def why(what: str) -> Param:
    """Declare the words that a pause leaves behind."""
    return Param("reason", f"Why the {what} is paused, in words.")
