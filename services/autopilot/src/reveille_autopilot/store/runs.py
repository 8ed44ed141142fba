"""Runs at rest: reading, and writing what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_autopilot.domain.deadlines import CANCEL_AGAIN
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.domain.states import RunState
from reveille_autopilot.store import rows
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.queries import load_queries

Q = load_queries("reveille_autopilot.store", "runs.sql")


@dataclass(frozen=True, slots=True)
class RunWrite:
    """A run as it shall be, and the state in which it was read under its lock."""

    run: Run
    state_before: RunState
    look_again: float | None
    given_up: bool


async def get(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Run]:
    """Read runs by id."""
    return _by_id(await tx.fetch(Q["get_runs"], ids))


async def brief(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Run]:
    """Read runs by id, without their texts."""
    return _by_id(await tx.fetch(Q["brief_runs"], ids))


async def lock(tx: Tx, locks: LockOrder, ids: Iterable[UUID]) -> dict[UUID, Run]:
    """Read runs and hold them."""
    return _by_id(await locks.take(tx, Level.RUN, Q["lock_runs"], ids))


async def ids_by_key(tx: Tx, keys: Sequence[str]) -> dict[str, UUID]:
    """Find the runs of occurrence keys."""
    found = await tx.fetch(Q["run_ids_by_key"], keys)
    return {row["occurrence_key"]: rows.uuid(row["id"]) for row in found}


async def ids_without_body(tx: Tx, delivery_ids: Sequence[UUID]) -> list[UUID]:
    """Find the open runs of deliveries whose bodies did not come yet."""
    return [rows.uuid(row["id"]) for row in await tx.fetch(Q["run_ids_without_body"], delivery_ids)]


async def await_bodies(
    tx: Tx, locks: LockOrder, ids: Iterable[UUID], length: timedelta
) -> set[UUID]:
    """Have runs wait for their bodies from now on; gives those that do."""
    found = await tx.fetch(Q["await_bodies"], locks.note(Level.RUN, ids), length)
    return {rows.uuid(row["id"]) for row in found}


async def write(tx: Tx, writes: Sequence[RunWrite]) -> dict[UUID, datetime | None]:
    """Store runs that were read in `state_before`; gives the end of each that was still so."""
    found = await tx.fetch(
        Q["write_runs"],
        [each.run.id for each in writes],
        [each.state_before.value for each in writes],
        [each.run.state.value for each in writes],
        [each.run.reason for each in writes],
        [each.run.message for each in writes],
        [each.run.wakeup_id for each in writes],
        [each.run.issue_id for each in writes],
        [each.run.result for each in writes],
        [each.look_again for each in writes],
        [each.given_up for each in writes],
    )
    return {rows.uuid(row["id"]): row["finished_at"] for row in found}


async def postpone(tx: Tx, delays: Mapping[UUID, float]) -> set[UUID]:
    """Have the sweep try again later; gives those that had no outcome yet."""
    ids = sorted(delays)
    soon = CANCEL_AGAIN.total_seconds()
    found = await tx.fetch(Q["postpone_runs"], ids, [delays[each] for each in ids], soon)
    return {rows.uuid(row["id"]) for row in found}


async def claim_due(tx: Tx, limit: int, seconds: float) -> tuple[list[Run], datetime | None]:
    """Take due runs for a while, oldest first, with the time at which they were due."""
    found = await tx.fetch(Q["claim_due_runs"], limit, seconds)
    runs = sorted((rows.run(row) for row in found), key=lambda run: run.id)
    return runs, found[0]["now"] if found else None


async def next_due_in(tx: Tx) -> float | None:
    """Say in how many seconds the next run is due."""
    seconds: float | None = await tx.fetchval(Q["next_due_in"])
    return seconds


async def payloads(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Payload]:
    """Read what goes downstream with runs."""
    return {
        rows.uuid(row["id"]): Payload(
            row["content_type"],
            row["payload"] or b"",
            row["payload_facts"],
            row["payload_omitted"],
        )
        for row in await tx.fetch(Q["load_payloads"], ids)
    }


async def request_cancel(tx: Tx, run_id: UUID, user_id: str) -> bool:
    """Remember that a run shall be cancelled; False when it has its outcome."""
    return await tx.fetchval(Q["request_cancel"], run_id, user_id) is not None


async def overdue(tx: Tx, ids: Sequence[UUID]) -> set[UUID]:
    """Find the pending runs whose time is over and that nobody wants cancelled."""
    return {rows.uuid(row["id"]) for row in await tx.fetch(Q["overdue"], ids)}


async def check_all_open(tx: Tx) -> int:
    """Have the sweep compare every open run with what it made; gives how many."""
    return await tx.execute(Q["check_all_open"])


async def page(
    tx: Tx,
    workspace_id: UUID,
    autopilot_id: UUID | None,
    trigger_id: UUID | None,
    states: Sequence[RunState],
    before: UUID | None,
    limit: int,
) -> list[Run]:
    """List runs, newest first."""
    wanted = [state.value for state in states] or None
    found = await tx.fetch(
        Q["list_runs"], workspace_id, autopilot_id, trigger_id, wanted, before, limit
    )
    return [rows.run(row) for row in found]


async def open_page(
    tx: Tx,
    workspace_id: UUID,
    autopilot_id: UUID | None,
    trigger_id: UUID | None,
    after: UUID,
    limit: int,
) -> list[Run]:
    """List runs without an outcome, oldest first."""
    found = await tx.fetch(Q["open_runs"], workspace_id, autopilot_id, trigger_id, after, limit)
    return [rows.run(row) for row in found]


async def find(tx: Tx, some_id: UUID) -> list[Run]:
    """Find the runs that an id of a run, delivery, wakeup or issue leads to."""
    return [rows.run(row) for row in await tx.fetch(Q["find_runs"], some_id)]


def _by_id(found: Iterable[rows.Row]) -> dict[UUID, Run]:
    runs = (rows.run(row) for row in found)
    return {run.id: run for run in runs}
