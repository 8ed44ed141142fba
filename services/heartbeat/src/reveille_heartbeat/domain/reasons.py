"""Why something in heartbeat did not go the ordinary way.

The part of the closed vocabulary (`common/v1/reason.proto`) that heartbeat writes into its rows.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """A machine's word for it; stored as it stands."""

    WORKSPACE_INACTIVE = "workspace_inactive"
    AGENT_NOT_FOUND = "agent_not_found"
    AGENT_RUNTIME_REQUIRED = "agent_runtime_required"
    RUNTIME_OFFLINE = "runtime_offline"
    INVOCATION_NOT_ALLOWED = "invocation_not_allowed"
    RESPONSIBLE_USER_UNRESOLVED = "responsible_user_unresolved"
    ISSUE_NOT_FOUND = "issue_not_found"
    ISSUE_CLOSED = "issue_closed"
    ISSUE_BUSY = "issue_busy"
    COALESCED = "coalesced"
    START_DEADLINE = "start_deadline"
    CANCELLED = "cancelled"
    ISSUE_CANCELLED = "issue_cancelled"
    PROCESS_LOST = "process_lost"
    RUN_TIMEOUT = "run_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    OUTPUT_LIMIT = "output_limit"
    SETUP_FAILED = "setup_failed"
    ADAPTER_FAILED = "adapter_failed"
