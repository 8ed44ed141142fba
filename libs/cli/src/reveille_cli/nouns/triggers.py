"""`reveille triggers`: what sets an autopilot off, by the clock or by a post from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from reveille_cli.apis import AUTOPILOTS
from reveille_cli.build import session
from reveille_cli.connection import Client
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import Failure, refused
from reveille_cli.names import AUTOPILOT, WORKSPACE_VARIABLE, find_id
from reveille_cli.nouns import secrets
from reveille_cli.nouns.secrets import NOT_BOTH, read_secret
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, the, truth
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer
from reveille_cli.values import assign, assign_json

CREDENTIAL_NOTE = "The hook's address is a credential, and it is shown only now."
UNSIGNED_NOTE = (
    "Without a signing secret it takes what is not signed from whoever knows the address, or"
    " nothing where its sender demands one: `reveille triggers secrets add`."
)
_ID = the("trigger_id", "The trigger.")
_AUTOPILOT = the("autopilot_id", "The autopilot.", AUTOPILOT)
_LABEL = Param("label", "A name for people.")
# What people type for the fields of a webhook.
_OPTIONS = {
    "webhook.provider": "provider",
    "webhook.event_filters": "event",
    "webhook.max_body_bytes": "max_body_bytes",
    "webhook.options": "options",
}
_DISABLED = Param("disabled", "Create it switched off.")


def listen(webhook: Any, events: Sequence[str]) -> None:
    """Set the events a webhook listens for, written like `issues:opened,closed`."""
    for wanted in events:
        name, _, actions = wanted.partition(":")
        named = (each.strip() for each in actions.split(","))
        webhook.event_filters.add(event=name.strip(), actions=[each for each in named if each])


def _filters(request: Any, events: list[str], name: str) -> None:
    del name
    listen(request.trigger.webhook, [each for each in events if each])


def _enabled(request: Any, text: str, name: str) -> None:
    request.trigger.enabled = truth(text, name)


def create_webhook(
    autopilot_id: Annotated[str, typer.Argument(help="The autopilot, by id or title.")],
    provider: Annotated[str, typer.Option(help="The sender's scheme, such as github.")],
    event: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EVENT[:ACTION,...]",
            help="An event to listen for, such as issues:opened; may be repeated. All if left out.",
        ),
    ] = None,
    signing_secret_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The file with the secret the sender signs with, or - for stdin."
        ),
    ] = None,
    signing_secret_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable with that secret.")
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="The largest accepted body; 256 KiB when left out.")
    ] = None,
    hook_options: Annotated[
        str | None,
        typer.Option(
            "--options",
            metavar="JSON",
            help='What the hook does otherwise than usual, such as {"content_policy": "refuse"}.',
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Create it switched off.")] = False,
    request_id: Annotated[str | None, typer.Option(help="Makes the call repeatable.")] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            envvar=WORKSPACE_VARIABLE,
            help="Where a title is looked up; the only workspace there is when left out.",
        ),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Create a trigger that fires when an outside system posts, and show its hook's address.

    With a signing secret, the secret is in place before the address is shown; if it cannot be
    added, the trigger is deleted again.
    """
    with session(data_dir, output) as (client, printer):
        if signing_secret_file is not None and signing_secret_env is not None:
            raise refused("signing_secret", NOT_BOTH)
        secret = b""
        if signing_secret_file is not None or signing_secret_env is not None:
            secret = read_secret(signing_secret_file, signing_secret_env, "signing_secret")
        request = AUTOPILOTS.request(
            "CreateTrigger",
            autopilot_id=find_id(client, AUTOPILOT, autopilot_id, workspace, "autopilot_id"),
            label=label or "",
            disabled=disabled,
            request_id=request_id or "",
        )
        assign(request, "webhook.provider", provider, "provider")
        if max_body_bytes is not None:
            assign(request, "webhook.max_body_bytes", max_body_bytes, "max_body_bytes")
        if hook_options is not None:
            _options(request.webhook, hook_options, "options")
        listen(request.webhook, [each for each in event or () if each])
        try:
            response = client.call(AUTOPILOTS, "CreateTrigger", request)
        except Failure as failure:
            failure.call(_OPTIONS)
            raise
        if secret:
            add_or_undo(client, response.trigger.trigger_id, secret, request_id)
        if not response.hook_url:
            response.hook_url = client.hooks_url(response.hook_path)
        _show_hook(printer, response)
        if not secret:
            printer.note(UNSIGNED_NOTE)


def _options(webhook: Any, text: str, name: str) -> None:
    """Read a hook's options: the contract's EndpointOptions, in JSON."""
    assign_json(webhook.options, text, name)


def _new_options(request: Any, text: str, name: str) -> None:
    _options(request.trigger.webhook, text, name)


def add_or_undo(
    client: Client, trigger_id: str, secret: bytes, request_id: str | None = None
) -> None:
    """Add the secret of a new trigger; without it the trigger would take unsigned posts."""
    request = AUTOPILOTS.request(
        "AddSigningSecret", trigger_id=trigger_id, secret=secret, request_id=request_id or ""
    )
    try:
        client.call(AUTOPILOTS, "AddSigningSecret", request)
    except Failure as failure:
        undo = AUTOPILOTS.request("DeleteTrigger", trigger_id=trigger_id)
        try:
            client.call(AUTOPILOTS, "DeleteTrigger", undo)
            failure.hint = "its signing secret could not be added, so the trigger was deleted again"
        except Failure:
            failure.hint = (
                f"the trigger {trigger_id} is left without its signing secret: "
                f"`reveille triggers delete {trigger_id}`"
            )
        raise


def _show_hook(printer: Printer, response: Any) -> None:
    printer.one(response, main="trigger")
    printer.note(CREDENTIAL_NOTE)
    if not response.endpoint_ready:
        printer.note("The gateway has not confirmed it yet; it will within moments.")


NOUN = Noun(
    name="triggers",
    help="Triggers: what sets an autopilot off.",
    api=AUTOPILOTS,
    verbs=(
        Verb(
            "create-schedule",
            "Create a trigger that fires by the clock.",
            "CreateTrigger",
            (
                _AUTOPILOT,
                Param("schedule.cron", "Five cron fields, or a macro.", flag="cron", argument=True),
                Param("schedule.time_zone", "The IANA zone; UTC when left out.", flag="--tz"),
                _LABEL,
                _DISABLED,
                REQUEST_ID,
            ),
            shows="trigger",
        ),
        Verb(
            "create-once",
            "Create a trigger that fires once.",
            "CreateTrigger",
            (
                _AUTOPILOT,
                Param(
                    "schedule.run_at",
                    "When, in RFC 3339, such as 2027-01-01T09:00:00Z.",
                    flag="at",
                    argument=True,
                ),
                Param(
                    "schedule.time_zone", "The zone of {{date}}; UTC when left out.", flag="--tz"
                ),
                _LABEL,
                REQUEST_ID,
            ),
            shows="trigger",
        ),
        Verb(
            "update",
            "Change a trigger; what is not named stays.",
            "UpdateTrigger",
            (
                the("trigger.trigger_id", "The trigger."),
                Param("trigger.label", "A name for people.", flag="--label"),
                Param(
                    "trigger.enabled",
                    "Whether it fires: true or false.",
                    flag="--enabled",
                    apply=_enabled,
                ),
                Param("trigger.schedule.cron", "Five cron fields, or a macro.", flag="--cron"),
                Param("trigger.schedule.time_zone", "The IANA zone.", flag="--tz"),
                Param(
                    "trigger.schedule.run_at",
                    "The one instant at which it fires, in place of a cron.",
                    flag="--at",
                ),
                Param(
                    "trigger.webhook.event_filters",
                    "An event to listen for, such as issues:opened; may be repeated, and an empty"
                    " one listens for all.",
                    flag="--event",
                    many=True,
                    apply=_filters,
                ),
                Param(
                    "trigger.webhook.max_body_bytes",
                    "The largest accepted body.",
                    flag="--max-body-bytes",
                ),
                Param(
                    "trigger.webhook.options",
                    "What the hook does otherwise than usual, in JSON; {} for nothing.",
                    flag="--options",
                    apply=_new_options,
                ),
                Param("trigger.etag", ETAG.help, flag="--etag"),
            ),
            shows="trigger",
            mask="trigger",
            read="GetTrigger",
        ),
        Verb(
            "list", "List an autopilot's triggers.", "ListTriggers", (_AUTOPILOT,), shows="triggers"
        ),
        Verb("get", "Show a trigger.", "GetTrigger", (_ID,), shows="trigger"),
        Verb(
            "rotate-token",
            "Give a webhook trigger a new address.",
            "RotateWebhookToken",
            (_ID, Param("grace", "How long the old one goes on working, such as 1h."), REQUEST_ID),
            main="trigger",
            note=CREDENTIAL_NOTE,
        ),
        Verb(
            "delete",
            "Delete a trigger; its runs stay.",
            "DeleteTrigger",
            (_ID,),
            note="Deleted.",
        ),
    ),
    actions=(("create-webhook", create_webhook), ("secrets", secrets.NOUN)),
)
