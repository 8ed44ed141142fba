"""`reveille triggers secrets`: what senders of a webhook sign with."""

from __future__ import annotations

import os
from typing import Any

from reveille_cli.apis import AUTOPILOTS
from reveille_cli.connection import Client
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import Failure, refused
from reveille_cli.nouns.shared import REQUEST_ID, the
from reveille_cli.printer import Printer
from reveille_cli.values import read_file

SECRET_BYTES = range(16, 1025)
NOT_BOTH = "give --signing-secret-file or --signing-secret-env, not both"
_ID = the("trigger_id", "The trigger.")


def _secret(request: Any, text: str, name: str) -> None:
    request.secret = read_secret(text, None, name)


def _secret_of_environment(request: Any, text: str, name: str) -> None:
    if request.secret:
        raise refused(name, NOT_BOTH)
    request.secret = read_secret(None, text, name)


def _require_secret(request: Any) -> None:
    if not request.secret:
        raise refused(
            "signing_secret", "is required: give --signing-secret-file or --signing-secret-env"
        )


def read_secret(file: str | None, variable: str | None, name: str) -> bytes:
    """Read a secret from a file (one line end at its end does not count) or from a variable."""
    if file is not None:
        secret = read_file(file, name).removesuffix(b"\n").removesuffix(b"\r")
    else:
        value = os.environ.get(variable or "")
        if not value:
            raise refused(name, f"the variable {variable} is not set")
        secret = os.fsencode(value)
    # What the service accepts; said before anything is made that would have to be undone.
    if len(secret) not in SECRET_BYTES:
        raise refused(
            name,
            f"must have {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes, and has {len(secret)}",
        )
    return secret


def _warn_of_the_last(client: Client, request: Any, printer: Printer) -> None:
    """Say what a hook without any secret does; an expired one would still demand signatures."""
    if printer.as_json:
        return
    wanted = AUTOPILOTS.request("ListSigningSecrets", trigger_id=request.trigger_id)
    try:
        left = client.call(AUTOPILOTS, "ListSigningSecrets", wanted).signing_secrets
    except Failure as failure:
        printer.note(f"Whether it was the last one could not be told: {failure.message}")
        return
    if not left:
        printer.note(
            "It was the last one: the hook now takes requests without a signature, unless its "
            "sender is one that demands a secret."
        )


NOUN = Noun(
    name="secrets",
    help="Signing secrets of a webhook trigger; several may live at once.",
    api=AUTOPILOTS,
    verbs=(
        Verb(
            "add",
            "Add a signing secret, from a file or from a variable.",
            "AddSigningSecret",
            (
                _ID,
                Param(
                    "",
                    "The file that holds it, or - for stdin; a line end at its end is left out.",
                    flag="--signing-secret-file",
                    apply=_secret,
                ),
                Param(
                    "",
                    "The environment variable that holds it.",
                    flag="--signing-secret-env",
                    apply=_secret_of_environment,
                ),
                Param("expire_time", "When it stops counting, in RFC 3339.", flag="--expires"),
                REQUEST_ID,
            ),
            shows="signing_secret",
            check=_require_secret,
        ),
        Verb(
            "list",
            "List the signing secrets by their hints, never their values.",
            "ListSigningSecrets",
            (_ID,),
            shows="signing_secrets",
        ),
        Verb(
            "remove",
            "Remove a signing secret.",
            "RemoveSigningSecret",
            (_ID, the("secret_id", "The secret.")),
            note="Removed.",
            after=_warn_of_the_last,
        ),
    ),
)
