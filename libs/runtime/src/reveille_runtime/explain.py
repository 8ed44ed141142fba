"""Findings: what a service says about its rows when an operator asks why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from reveille.explain.v1 import explain_service_pb2 as pb
from reveille.explain.v1.explain_service_pb2_grpc import ExplainServiceServicer
from reveille_runtime.errors import InvalidArgument
from reveille_runtime.validation import to_timestamp

LONGEST_ID = 512


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact in plain words, the rows it rests on, and what would change it.

    `rows` are (schema.table, key) pairs; `related` are ids and occurrence keys that are worth
    explaining next; `command` is a `reveille` command, empty when nothing would help.
    """

    time: datetime
    subject: str
    subject_id: str
    state: str
    text: str
    rows: tuple[tuple[str, str], ...]
    reason: str = ""
    command: str = ""
    related: tuple[str, ...] = ()


class ExplainServicer(ExplainServiceServicer):
    """Serves `ExplainService` from a use case that finds what a service knows about an id."""

    def __init__(self, explain: Callable[[str], Awaitable[Sequence[Finding]]]) -> None:
        self._explain = explain

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:
        """Answer with the findings, newest first."""
        wanted = request.id.strip()
        if not wanted or len(wanted) > LONGEST_ID or "\x00" in wanted:
            raise InvalidArgument.of(
                "id", f"is required, at most {LONGEST_ID} characters", "INVALID_FIELD"
            )
        found = await self._explain(wanted)
        newest_first = sorted(found, key=lambda finding: finding.time, reverse=True)
        return pb.ExplainResponse(findings=[_message(finding) for finding in newest_first])


def iso(moment: datetime) -> str:
    """Write an instant as texts and occurrence keys do: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span_of(seconds: float) -> str:
    """Write a length of time as a person would say it."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 172_800 else f"{whole // 86_400} days"


def uuid_or_none(text: str) -> UUID | None:
    """Read an id, where the text may also be a key."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _message(finding: Finding) -> pb.Finding:
    return pb.Finding(
        time=to_timestamp(finding.time),
        subject=finding.subject,
        subject_id=finding.subject_id,
        state=finding.state,
        reason=finding.reason,
        text=finding.text,
        rows=[pb.Row(table=table, id=key) for table, key in finding.rows],
        command=finding.command,
        related=finding.related,
    )
