"""`reveille hooks`: play the sender of a webhook, or its receiver."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from reveille_cli.apis import AUTOPILOTS, DELIVERIES, ENDPOINTS
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused
from reveille_cli.following import follow
from reveille_cli.jsonform import plain
from reveille_cli.names import WORKSPACE_VARIABLE, find_workspace
from reveille_cli.nouns.secrets import read_secret
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.signing import header_pairs, named, post, sign
from reveille_cli.times import instant
from reveille_cli.values import read_file

app = typer.Typer(
    help="Hooks: sign, send, listen, and explain a signature.",
    no_args_is_help=True,
    add_completion=False,
)

Provider = Annotated[str, typer.Argument(help="The sender's scheme, such as github.")]
BodyFile = Annotated[
    str, typer.Option("--body-file", metavar="FILE", help="The body, or - for stdin.")
]
SecretFile = Annotated[
    str | None,
    typer.Option("--signing-secret-file", metavar="FILE", help="The file with the secret."),
]
SecretEnv = Annotated[
    str | None, typer.Option("--signing-secret-env", metavar="NAME", help="Or the variable.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME: VALUE", help="Another header; may be repeated."),
]
Event = Annotated[
    str | None,
    typer.Option("--event", help="The event, for senders that name it in a header."),
]
At = Annotated[
    str | None, typer.Option(help="The time that is signed, in RFC 3339; now when left out.")
]
EventId = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="The sender's id for it, for senders that give it in a header."
        " When left out, a new one where it is signed, else none.",
    ),
]
Hook = Annotated[
    str | None,
    typer.Option(
        "--trigger",
        metavar="ID",
        help="The hook's trigger, whose options say how generic_hmac and generic_token sign;"
        " as usual when left out.",
    ),
]


@app.command("sign")
def sign_(
    provider: Provider,
    body_file: BodyFile,
    signing_secret_file: SecretFile = None,
    signing_secret_env: SecretEnv = None,
    url: Annotated[str, typer.Option(help="The hook's address, for senders that sign it.")] = "",
    at: At = None,
    event: Event = None,
    event_id: EventId = None,
    trigger: Hook = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Print the headers with which a sender would sign a body, and name its event and id.

    They are credentials for this body.
    """
    with session(data_dir, output) as (client, printer):
        body = read_file(body_file, "body")
        _one_secret(signing_secret_file, signing_secret_env)
        row = _row(client, provider, trigger)
        headers = named(row, event=event, event_id=event_id)
        secret = read_secret(signing_secret_file, signing_secret_env, "signing_secret")
        headers |= _signed(row, secret, body, url, at, event_id)
        if printer.as_json:
            printer.document({"headers": headers})
            return
        for name, value in headers.items():
            printer.text(f"{name}: {value}")


@app.command()
def send(
    provider: Provider,
    url: Annotated[str, typer.Option(help="The hook's address.")],
    body_file: BodyFile,
    signing_secret_file: SecretFile = None,
    signing_secret_env: SecretEnv = None,
    header: Header = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="The body's media type.")
    ] = "application/json",
    at: At = None,
    event: Event = None,
    event_id: EventId = None,
    trigger: Hook = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Post a body to a hook as a sender would, and print what came back.

    Without a secret it goes unsigned. Exits with 1 when the answer is no success.
    """
    with session(data_dir, output) as (client, printer):
        body = read_file(body_file, "body")
        made: dict[str, str] = {}
        signs = signing_secret_file is not None or signing_secret_env is not None
        if signs:
            _one_secret(signing_secret_file, signing_secret_env)
        if signs or event or event_id or trigger:
            row = _row(client, provider, trigger)
            made = named(row, event=event, event_id=event_id)
        if signs:
            secret = read_secret(signing_secret_file, signing_secret_env, "signing_secret")
            made |= _signed(row, secret, body, url, at, event_id)
        given = header_pairs(header or ())
        _once(given, made)
        said = post(url, body, {"Content-Type": content_type, **given, **made})
        text = said.body.decode("utf-8", "replace")
        if printer.as_json:
            printer.document({"status": said.status, "body_text": text})
        else:
            printer.text(f"{said.status} {text}")
        if said.status >= 300:
            raise typer.Exit(ExitCode.FAILED)


@app.command()
def listen(
    trigger: Annotated[str | None, typer.Option(help="Only of this trigger.")] = None,
    forward_to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Post each body here, with the headers that were kept."),
    ] = None,
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
    """Tell of deliveries as they come in, and pass their bodies on to a server of yours.

    What was rejected is told of, and never passed on.
    """
    with session(data_dir, output) as (client, printer):
        request = DELIVERIES.request(
            "WatchDeliveries",
            workspace_id=find_workspace(client, workspace),
            endpoint_id=trigger or "",
        )
        heard: set[str] = set()
        for news in follow(client, DELIVERIES, "WatchDeliveries", request):
            delivery = news.delivery
            if delivery.delivery_id in heard:
                continue
            heard.add(delivery.delivery_id)
            shown = plain(delivery)
            answer = None
            if forward_to is not None and shown["state"] != "rejected":
                answer = _passed_on(client, delivery, forward_to)
            if printer.as_json:
                printer.document({"delivery": shown, "forwarded_status": answer})
                continue
            words = (shown["delivery_id"], shown["event"], shown["action"], shown["state"])
            passed = "" if answer is None else f"-> {answer}"
            printer.text("  ".join(word for word in (*words, passed) if word))


@app.command()
def explain(
    delivery_id: Annotated[str, typer.Argument(help="The delivery.")],
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Tell why a delivery's signature failed; the signature that was expected is never shown.

    Of one that was refused for something else it tells for what. Exits with 1 when none of the
    usual reasons was found.
    """
    with session(data_dir, output) as (client, printer):
        request = DELIVERIES.request("ExplainSignature", delivery_id=delivery_id)
        found = plain(client.call(DELIVERIES, "ExplainSignature", request))
        failed = found["signature_state"] in {"invalid", "missing"}
        if printer.as_json:
            printer.document(found)
        elif found["findings"]:
            for each in found["findings"]:
                printer.text(f"{each['code']}: {each['text']}")
        elif failed:
            printer.text(
                "The signature matches no live secret, and no usual mistake explains it: its sender"
                " has another secret, perhaps. `reveille triggers secrets list` shows how those of"
                " the hook end."
            )
        else:
            wanted = DELIVERIES.request("GetDelivery", delivery_id=delivery_id)
            answer = plain(client.call(DELIVERIES, "GetDelivery", wanted).delivery)
            printer.text(_other(answer, found["signature_state"]))
        if failed and not found["findings"]:
            raise typer.Exit(ExitCode.FAILED)


def _other(delivery: Mapping[str, Any], signature: str) -> str:
    """Say of a delivery whose signature did not fail whether something else was refused."""
    if delivery["state"] != "rejected":
        return f"Nothing failed: the signature is {signature}."
    words = ": ".join(each for each in (delivery["reason"], delivery["message"]) if each)
    return f"It was refused, and not for its signature: {words}"


def _one_secret(file: str | None, variable: str | None) -> None:
    if (file is None) == (variable is None):
        raise refused("signing_secret", "give --signing-secret-file or --signing-secret-env")


def _once(given: Mapping[str, str], made: Mapping[str, str]) -> None:
    """Refuse a header that would come twice, which leaves open which one is meant."""
    for name in given:
        if name.lower() in made:
            raise refused("header", f"{name} is one that the other options set")


def _signed(
    row: Any, secret: bytes, body: bytes, url: str, at: str | None, event_id: str | None
) -> dict[str, str]:
    if not row.HasField("scheme"):
        raise refused("provider", "how this sender signs takes more than a template")
    return sign(
        row.scheme,
        row.signature_header,
        secret,
        body,
        url=url,
        moment=time.time() if at is None else instant(at, "at").timestamp(),
        event_id=event_id or str(uuid.uuid4()),
    )


def _row(client: Client, provider: str, trigger: str | None) -> Any:
    """Find a sender's row, as the hook of a trigger has it."""
    request = ENDPOINTS.request("ListProviders")
    if trigger is not None:
        wanted = AUTOPILOTS.request("GetTrigger", trigger_id=trigger)
        webhook = client.call(AUTOPILOTS, "GetTrigger", wanted).trigger.webhook
        if webhook.provider != provider:
            raise refused("trigger", f"has no hook for {provider}")
        request.generic.CopyFrom(webhook.options.generic)
    answer = client.call(ENDPOINTS, "ListProviders", request)
    row = next((each for each in answer.providers if each.name == provider), None)
    if row is None:
        known = ", ".join(each.name for each in answer.providers)
        raise refused("provider", f"must be one of: {known}")
    return row


def _passed_on(client: Client, delivery: Any, url: str) -> int | None:
    """Post a stored body; None when nobody answered."""
    request = DELIVERIES.request("GetDeliveryBody", delivery_id=delivery.delivery_id)
    pieces = client.stream(DELIVERIES, "GetDeliveryBody", request)
    headers = {
        name: value
        for name, value in delivery.headers.items()
        # The body is kept as it reads, no longer as it was packed.
        if not name.endswith("-present") and name != "content-encoding"
    }
    headers["Content-Type"] = delivery.content_type or "application/octet-stream"
    try:
        return post(url, b"".join(piece.chunk for piece in pieces), headers).status
    except Failure as failure:
        if failure.exit_code is not ExitCode.UNAVAILABLE:
            raise
        return None
