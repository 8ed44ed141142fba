"""`reveille workspaces`: the tenants."""

from __future__ import annotations

import re
from typing import Any

from reveille.autopilot.v1 import workspace_service_pb2
from reveille_cli.apis import WORKSPACES
from reveille_cli.declare import Noun, Param, Verb
from reveille_cli.failures import refused
from reveille_cli.names import WORKSPACE
from reveille_cli.nouns.shared import ETAG, REQUEST_ID, the, truth

_QUOTA = re.compile(r"(observe|enforce):(\d{1,10})/(day|month)")


def _fail_closed(request: Any, text: str, name: str) -> None:
    request.workspace.attribution_fail_closed = truth(text, name)


def _quota(request: Any, text: str, name: str) -> None:
    read_quota(request.workspace.quota, text, name)


def read_quota(quota: workspace_service_pb2.QuotaPolicy, text: str, name: str) -> None:
    """Read a quota as people write it, such as `enforce:1000/month`."""
    if text == "off":
        quota.action = workspace_service_pb2.QUOTA_ACTION_OFF
        return
    parts = _QUOTA.fullmatch(text)
    if parts is None:
        raise refused(name, "must be off, or like enforce:1000/month or observe:50/day")
    quota.action = workspace_service_pb2.QuotaAction.Value(f"QUOTA_ACTION_{parts[1].upper()}")
    quota.limit = int(parts[2])
    quota.period = workspace_service_pb2.QuotaPeriod.Value(f"QUOTA_PERIOD_{parts[3].upper()}")


NOUN = Noun(
    name="workspaces",
    help="Workspaces: everything belongs to exactly one.",
    api=WORKSPACES,
    verbs=(
        Verb(
            "create",
            "Create a workspace with its first owner.",
            "CreateWorkspace",
            (
                Param("name", "The display name.", argument=True),
                Param(
                    "issue_prefix",
                    "What its issues' names begin with: 2 to 8 capital letters.",
                    required=True,
                ),
                Param("owner_user_id", "The first owner; you when left out.", flag="--owner"),
                Param(
                    "attribution_fail_closed",
                    "Refuse runs for which nobody is accountable.",
                    flag="--fail-closed",
                ),
                REQUEST_ID,
            ),
            shows="workspace",
        ),
        Verb("list", "List the workspaces you may see.", "ListWorkspaces", (), shows="workspaces"),
        Verb(
            "get",
            "Show a workspace.",
            "GetWorkspace",
            (the("workspace_id", "The workspace, by id or name.", WORKSPACE),),
            shows="workspace",
        ),
        Verb(
            "update",
            "Change a workspace; what is not named stays.",
            "UpdateWorkspace",
            (
                the("workspace.workspace_id", "The workspace, by id or name.", WORKSPACE),
                Param("workspace.name", "The display name.", flag="--name"),
                Param(
                    "workspace.attribution_fail_closed",
                    "Whether runs for which nobody is accountable are refused: true or false.",
                    flag="--fail-closed",
                    apply=_fail_closed,
                ),
                Param(
                    "workspace.quota",
                    "How many runs it may have: off, or observe:LIMIT/PERIOD or"
                    " enforce:LIMIT/PERIOD, such as enforce:1000/month or observe:50/day.",
                    flag="--quota",
                    apply=_quota,
                ),
                Param(
                    "workspace.default_responsible_user_id",
                    "Who answers where nobody else can be named.",
                    flag="--responsible",
                ),
                Param(
                    "workspace.status",
                    "Whether work goes on in it; archived is for good.",
                    flag="--status",
                ),
                Param("workspace.etag", ETAG.help, flag="--etag"),
            ),
            shows="workspace",
            mask="workspace",
            read="GetWorkspace",
        ),
    ),
)
