"""What admission reads and writes: rules by the batch, and new runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from uuid import UUID

from reveille_autopilot.domain.attribution import Candidates, Publisher
from reveille_autopilot.domain.gate import Rule
from reveille_autopilot.domain.models import Payload, Quota, Run
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.feed import FeedEvent, make_and_tell
from reveille_runtime.forms import forms_of
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "admission.sql")
# What runs of one rule have in common, where they are judged at the same moment.
_SHARED = attrgetter(
    "workspace_id",
    "autopilot_id",
    "trigger_id",
    "source",
    "state",
    "planned_at",
    "execution_mode",
    "agent_id",
    "squad_id",
    "project_id",
    "rule_version_id",
    "title",
    "prompt",
    "originator_user_id",
    "accountable_user_id",
    "attribution_source",
    "reason",
    "message",
    "payload_ready",
    "next_attempt_at",
    "dispatch_deadline_at",
    "created_at",
    "finished_at",
    "quota_period_start",
)


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule as the gate judges it, with the moment it was read at."""

    rule: Rule
    now: datetime


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to insert, and its payload where it came along."""

    run: Run
    payload: Payload | None


async def load_rules(
    tx: Tx, wanted: Sequence[tuple[UUID | None, UUID | None]], keys: Sequence[str]
) -> tuple[list[LoadedRule], list[str]]:
    """Read the rules of (trigger, autopilot) pairs, in order, and which keys have made a run."""
    found = await tx.fetch(
        Q["load_rules"], [trigger for trigger, _ in wanted], [rule for _, rule in wanted], keys
    )
    return [_loaded(row) for row in found], found[0]["taken"]


async def find_by_key(tx: Tx, keys: Sequence[str]) -> dict[str, Run]:
    """Read the runs that keys have made."""
    found = await tx.fetch(Q["find_runs_by_key"], keys)
    return {row["occurrence_key"]: rows.run(row) for row in found}


async def insert(tx: Tx, new: Sequence[NewRun], events: Sequence[FeedEvent]) -> list[UUID]:
    """Insert runs, and tell of those that nothing overtook; gives these."""
    ids = {str(event.subject_id): each.run.id for event, each in zip(events, new, strict=True)}
    told = await make_and_tell(tx, Q["insert_runs"], columns(new), events)
    return [ids[run_id] for run_id in told]


def columns(new: Sequence[NewRun]) -> tuple[Sequence[object], ...]:
    """Give the columns of new runs, then those of their forms, as their insertion takes them."""
    # A payload belongs to one run: it is not compared, bytes by bytes, with others.
    firsts, form_of = forms_of(new, lambda each: (id(each.payload), _SHARED(each.run)))
    return (
        [each.run.id for each in new],
        [each.run.occurrence_key for each in new],
        [each.run.delivery_id for each in new],
        [each.run.request_fingerprint for each in new],
        [dict(each.run.trace_carrier) for each in new],
        form_of,
        *zip(*(_SHARED(each.run) for each in firsts), strict=True),
        [each.payload.content_type if each.payload else "" for each in firsts],
        [each.payload.body if each.payload else None for each in firsts],
        [dict(each.payload.facts) if each.payload else {} for each in firsts],
    )


async def store_payloads(
    tx: Tx, bodies: Sequence[tuple[UUID, UUID, Payload]], look_again: timedelta
) -> set[UUID]:
    """Store the bodies of (run, delivery) pairs; gives those that were still missing."""
    found = await tx.fetch(
        Q["store_payloads"],
        [run for run, _, _ in bodies],
        [delivery for _, delivery, _ in bodies],
        [payload.content_type for _, _, payload in bodies],
        [payload.body for _, _, payload in bodies],
        [dict(payload.facts) for _, _, payload in bodies],
        [payload.omitted for _, _, payload in bodies],
        look_again,
    )
    return {rows.uuid(row["id"]) for row in found}


def _loaded(row: rows.Row) -> LoadedRule:
    rule = Rule(
        autopilot=None if row["a_id"] is None else rows.autopilot(row, "a_"),
        trigger=None if row["t_id"] is None else rows.trigger(row, "t_"),
        candidates=Candidates(
            trigger_publisher=_publisher(
                row["t_publisher_user_id"], active=row["trigger_publisher_active"]
            ),
            rule_publisher=_publisher(row["rule_publisher"], active=row["rule_publisher_active"]),
        ),
        fail_closed=bool(row["fail_closed"]),
        quota=Quota() if row["quota_action"] is None else rows.quota(row),
    )
    return LoadedRule(rule, row["now"])


def _publisher(user_id: str | None, *, active: bool) -> Publisher | None:
    return None if user_id is None else Publisher(user_id, active)
