"""`reveille tokens`: bearer tokens, minted with the operator key."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure, refused, reporting
from reveille_cli.options import DEFAULT_DIR, DEFAULT_OUTPUT, DataDirOption, OutputOption
from reveille_cli.printer import Printer
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.keys import ISSUERS, LOCAL_USER, TRUSTED_KEYS, key_file
from reveille_cli.times import duration, rfc3339
from reveille_runtime.access import CallerKind, Role
from reveille_runtime.tokens import (
    LEEWAY,
    OPERATOR_ISSUER,
    KeyFileError,
    TokenMinter,
    load_trusted_keys,
)

app = typer.Typer(
    help="Tokens: credentials for calls to the services.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """Keep `create` a verb, although it is the only one."""


@app.command()
def create(
    user: Annotated[
        str | None, typer.Option(help=f"The user it stands for; {LOCAL_USER} when left out.")
    ] = None,
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=ROLE",
            help="The user's role in a workspace: owner, admin or member; may be repeated.",
        ),
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Give the user the cluster role operator.")
    ] = False,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Stand for a service of yours, not for a user; Reveille's own have their keys.",
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            help="How long it holds, such as 15m, 1h or 7d. Services accept it up to"
            f" {LEEWAY:.0f} s longer, since clocks differ."
        ),
    ] = "1h",
    key: Annotated[
        Path | None,
        typer.Option("--key-file", help="The operator's key; the data directory's when left out."),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Make a token and print it: the whole of stdout, so that $(reveille tokens create) is one."""
    with reporting(output):
        if service is not None:
            _check_service(service, DataDir.at(data_dir), alone=not (workspace or operator or user))
        seconds = duration(ttl, "ttl").total_seconds()
        if seconds < 1:
            raise refused("ttl", "must be a second at least")
        roles = dict(_role(each) for each in workspace or ())
        kind = CallerKind.USER if service is None else CallerKind.SERVICE
        subject = (user or LOCAL_USER) if service is None else service
        now = time.time()
        token = _minter(key, DataDir.at(data_dir)).mint(
            kind, subject, lifetime=seconds, roles=roles, operator=operator, now=now
        )
        printer = Printer(output)
        if not printer.as_json:
            printer.text(token)
            return
        printer.document(
            {
                "token": token,
                "kind": kind.value,
                "subject": subject,
                "operator": operator,
                "roles": {str(each): role.value for each, role in roles.items()},
                "expire_time": rfc3339(datetime.fromtimestamp(int(now + seconds), UTC)),
            }
        )


def _check_service(service: str, place: DataDir, *, alone: bool) -> None:
    """Refuse a token that no service would accept, or that would mix two callers."""
    if not alone:
        raise refused(
            "service",
            "a service has no user and no roles; leave --user, --workspace, --operator out",
        )
    if not service.strip():
        raise refused("service", "is a name, and not empty")
    if service in _issuers(place):
        raise refused(
            "service",
            f"{service} has a key of its own, and services accept no other for it",
            hint="a token for a service of yours needs another name",
        )


def _issuers(place: DataDir) -> frozenset[str]:
    """Return who has a key of its own: on this data directory, and in every deployment."""
    try:
        trusted = load_trusted_keys(place.keys / TRUSTED_KEYS)
    except KeyFileError:
        trusted = ()
    return frozenset(ISSUERS) | {key.issuer for key in trusted}


def _minter(named: Path | None, place: DataDir) -> TokenMinter:
    try:
        return TokenMinter(named or key_file(place, OPERATOR_ISSUER), OPERATOR_ISSUER)
    except KeyFileError as error:
        if named is not None:
            raise refused("key_file", f"{error}") from error
        raise Failure(
            "key_missing",
            f"{error}",
            ExitCode.NOT_ALLOWED,
            hint="`reveille up` makes the keys of a data directory; --key-file names another key",
        ) from error


def _role(text: str) -> tuple[UUID, Role]:
    workspace, separator, role = text.partition("=")
    try:
        if separator:
            return UUID(workspace), Role(role)
    except ValueError:
        pass
    roles = ", ".join(each.value for each in Role)
    raise refused(
        "workspace",
        f"{text!r} must be ID=ROLE, the role one of {roles}",
        hint="`reveille workspaces list` shows the ids",
    )
