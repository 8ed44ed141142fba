"""`reveille deliveries`: what outside systems posted."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from reveille_cli.apis import DELIVERIES
from reveille_cli.build import session
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import refused
from reveille_cli.following import follow
from reveille_cli.jsonform import plain
from reveille_cli.names import WORKSPACE_VARIABLE, find_workspace
from reveille_cli.nouns.shared import REQUEST_ID, WORKSPACE, in_states, only_of, the
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.terminal import pour


def body(
    delivery_id: Annotated[str, typer.Argument(help="The delivery.")],
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Print a delivery's body as it came, into a pipe byte for byte; in JSON as text or base64.

    On a terminal, control characters are shown and not sent.
    """
    with session(data_dir, output) as (client, printer):
        request = DELIVERIES.request("GetDeliveryBody", delivery_id=delivery_id)
        pieces = client.stream(DELIVERIES, "GetDeliveryBody", request)
        if not printer.as_json:
            pour(piece.chunk for piece in pieces)
            return
        whole = b"".join(piece.chunk for piece in pieces)
        document: dict[str, object] = {"delivery_id": delivery_id, "body_bytes": len(whole)}
        try:
            document["body_text"] = whole.decode()
        except UnicodeDecodeError:
            document["body_base64"] = base64.b64encode(whole).decode()
        printer.document(document)


def watch(
    trigger: Annotated[str | None, typer.Option(help="Only of this trigger.")] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar=WORKSPACE_VARIABLE,
            help="The workspace, by id or name; the only one there is when left out.",
        ),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Follow deliveries as they come in, and each until it reaches its end.

    In JSON each piece of news is a document on a line of its own.
    """
    with session(data_dir, output) as (client, printer):
        request = DELIVERIES.request(
            "WatchDeliveries",
            workspace_id=find_workspace(client, workspace),
            endpoint_id=trigger or "",
        )
        for news in follow(client, DELIVERIES, "WatchDeliveries", request):
            if printer.as_json:
                printer.document(plain(news.delivery))
                continue
            shown = plain(news.delivery)
            words = [shown[name] for name in ("delivery_id", "event", "action", "state", "reason")]
            printer.text("  ".join(word for word in words if word))


def _hash(request: Any, text: str, name: str) -> None:
    try:
        request.body_sha256 = bytes.fromhex(text)
    except ValueError as error:
        raise refused(name, "must be hexadecimal") from error


NOUN = Noun(
    name="deliveries",
    help="Deliveries: what outside systems posted, and what became of it.",
    api=DELIVERIES,
    verbs=(
        Verb(
            "list",
            "List deliveries, newest first.",
            "ListDeliveries",
            (
                WORKSPACE,
                only_of("endpoint_id", "--trigger", "trigger"),
                in_states("states"),
                Param("start_time", "Only what came in since, in RFC 3339.", flag="--since"),
                Param("end_time", "Only what came in before.", flag="--until"),
                Param("event", "Only of this event."),
                Param("provider", "Only of this sender's scheme."),
                Param("dedupe_id", "Only with this id of the sender's.", flag="--id"),
                Param(
                    "body_sha256",
                    "Only with this SHA-256 of the body, in hexadecimal.",
                    flag="--hash",
                    apply=_hash,
                ),
            ),
            shows="deliveries",
        ),
        Verb(
            "replay",
            "Make a new delivery of the stored bytes of one; it is judged and dispatched anew.",
            "ReplayDelivery",
            (the("delivery_id", "The delivery."), REQUEST_ID),
            shows="delivery",
        ),
        Verb(
            "release",
            "Let the deliveries of a trigger go that the loop breaker holds.",
            "ReleaseHeldDeliveries",
            (the("endpoint_id", "The trigger."),),
        ),
        Verb(
            "purge",
            "End the deliveries of a trigger that the loop breaker holds.",
            "PurgeHeldDeliveries",
            (the("endpoint_id", "The trigger."),),
        ),
        Verb(
            "get",
            "Show a delivery, without its body.",
            "GetDelivery",
            (the("delivery_id", "The delivery."),),
            shows="delivery",
        ),
    ),
    actions=(("body", body), ("watch", watch)),
)
