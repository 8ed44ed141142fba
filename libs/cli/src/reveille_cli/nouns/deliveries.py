"""`reveille deliveries`: what outside systems posted."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from reveille_cli.apis import DELIVERIES
from reveille_cli.build import session
from reveille_cli.declare import Noun, Verb
from reveille_cli.nouns.shared import WORKSPACE, in_states, only_of, the
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


NOUN = Noun(
    name="deliveries",
    help="Deliveries: what outside systems posted, and what became of it.",
    api=DELIVERIES,
    verbs=(
        Verb(
            "list",
            "List deliveries, newest first.",
            "ListDeliveries",
            (WORKSPACE, only_of("endpoint_id", "--trigger", "trigger"), in_states("states")),
            shows="deliveries",
        ),
        Verb(
            "get",
            "Show a delivery, without its body.",
            "GetDelivery",
            (the("delivery_id", "The delivery."),),
            shows="delivery",
        ),
    ),
    actions=(("body", body),),
)
