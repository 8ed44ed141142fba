"""Occurrence keys: the names under which everything downstream is made at most once."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import UUID

from reveille_autopilot.domain.states import RunSource

MAX_REQUEST_ID = 128


def schedule_key(trigger_id: UUID, planned_at: datetime) -> str:
    """Name a planned occurrence: whole UTC seconds, so that one instant has one spelling."""
    if planned_at.microsecond:
        raise ValueError("a planned instant is a whole second")
    return f"schedule:{trigger_id}:{planned_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def webhook_key(delivery_id: UUID) -> str:
    """Name the occurrence that a delivery is."""
    return f"webhook:{delivery_id}"


def request_key(source: RunSource, autopilot_id: UUID, principal: str, request_id: str) -> str:
    """Name the occurrence that a caller asked for.

    Whatever a caller's name holds, it ends where the request's id begins: two callers never share a
    key.
    """
    if not source.on_request:
        raise ValueError(f"{source} runs are not asked for")
    kind, _, name = principal.partition(":")
    if ":" in name or "%" in name:
        name = "%" + hashlib.sha256(name.encode()).hexdigest()
    return f"{source}:{autopilot_id}:{kind}:{name}:{request_id}"


def generation_key(base: str, given_up: int) -> str:
    """Name the run that follows `given_up` runs of the same occurrence.

    What those made is recorded as cancelled under their own keys, so a clean run needs another.
    """
    return base if given_up == 0 else f"{base}#{given_up + 1}"
