"""What the services would refuse, asked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from reveille_cli.apis import ENDPOINTS
from reveille_cli.apply import hook_options
from reveille_cli.apply.document import Problems
from reveille_cli.apply.plan import Action, Change
from reveille_cli.apply.wanted import TRIGGER, Wanted
from reveille_cli.connection import Client
from reveille_cli.exits import ExitCode
from reveille_cli.failures import Failure

# How long a gateway that hangs holds up who does not need it.
_PATIENCE_SECONDS = 5.0


def check(client: Client, changes: Sequence[Change], found: Problems, *, strictly: bool) -> None:
    """Refuse hooks that the gateway would refuse, and moments that have passed.

    The gateway may be away: only `strictly` is that a failure, since autopilot asks it again.
    """
    for change in changes:
        wanted, new = change.wanted, change.action is Action.CREATE
        if wanted.kind is not TRIGGER or not (new or change.action is Action.UPDATE):
            continue
        if (new or "schedule.run_at" in change.mask) and _has_passed(wanted):
            found.add(wanted.line, f"trigger {wanted.name!r}: at must lie in the future")
        if wanted.message.HasField("webhook") and (new or hook_options.PATH in change.mask):
            try:
                _check_hook(client, wanted, found)
            except Failure:
                if strictly:
                    raise
                break
    found.check()


def _has_passed(wanted: Wanted) -> bool:
    schedule = wanted.message.schedule
    if not schedule.HasField("run_at"):
        return False
    return bool(schedule.run_at.ToDatetime(tzinfo=UTC) <= datetime.now(UTC))


def _check_hook(client: Client, wanted: Wanted, found: Problems) -> None:
    webhook = wanted.message.webhook
    request = ENDPOINTS.request("CheckEndpoint", provider=webhook.provider, options=webhook.options)
    try:
        client.call(ENDPOINTS, "CheckEndpoint", request, timeout=_PATIENCE_SECONDS)
    except Failure as failure:
        if failure.exit_code is not ExitCode.REFUSED:
            raise
        for each in failure.violations:
            found.add(wanted.line, f"trigger {wanted.name!r}: {each}")
