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
from reveille_cli.stack.keys import LOCAL_USER, key_file
from reveille_cli.times import duration, rfc3339
from reveille_runtime.access import CallerKind, Role
from reveille_runtime.tokens import OPERATOR_ISSUER, KeyFileError, TokenMinter

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
    user: Annotated[str, typer.Option(help="The user it stands for.")] = LOCAL_USER,
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
        str | None, typer.Option(metavar="NAME", help="Stand for a service, not for a user.")
    ] = None,
    ttl: Annotated[str, typer.Option(help="How long it holds, such as 15m, 1h or 7d.")] = "1h",
    key: Annotated[
        Path | None,
        typer.Option("--key-file", help="The operator's key; the data directory's when left out."),
    ] = None,
    data_dir: DataDirOption = DEFAULT_DIR,
    output: OutputOption = DEFAULT_OUTPUT,
) -> None:
    """Make a token and print it: the whole of stdout, so that $(reveille tokens create) is one."""
    with reporting(output):
        if service is not None and (workspace or operator):
            raise refused("service", "a service has no roles; leave --workspace and --operator out")
        seconds = duration(ttl, "ttl").total_seconds()
        if seconds < 1:
            raise refused("ttl", "must be a second at least")
        roles = dict(_role(each) for each in workspace or ())
        kind = CallerKind.USER if service is None else CallerKind.SERVICE
        subject = user if service is None else service
        now = time.time()
        token = _minter(key or key_file(DataDir.at(data_dir), OPERATOR_ISSUER)).mint(
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


def _minter(key: Path) -> TokenMinter:
    try:
        return TokenMinter(key, OPERATOR_ISSUER)
    except KeyFileError as error:
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
    raise refused("workspace", f"{text!r} must be ID=ROLE, the role one of {roles}")
