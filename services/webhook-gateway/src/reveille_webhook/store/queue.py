"""The table of deliveries as the worker's queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_runtime.db import Tx
from reveille_runtime.lease import Lease
from reveille_runtime.queries import load_queries
from reveille_webhook.domain.delivery import Claim, Ending, clipped
from reveille_webhook.store.deliveries import facts_of

Q = load_queries(__package__, "queue.sql")
_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of an attempt, fenced by its lease; `available_at` when it is tried again."""

    lease: Lease
    ending: Ending
    available_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Expired:
    """A claim whose lease has run out."""

    lease: Lease
    attempt: int
    now: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """What a claim did: what it took up, put off and holds (by hook), and how far it saw."""

    claims: list[Claim]
    deferred: int
    held: list[UUID]
    newest: datetime | None


async def claim(
    tx: Tx,
    lease: timedelta,
    limit: int,
    since: datetime,
    rate: int,
    budget: int,
    grace: timedelta,
    far_off: timedelta,
) -> Taken:
    """Take up deliveries that are due, within the rates and budgets of their hooks."""
    rows = await tx.fetch(Q["claim"], lease, limit, since, rate, budget, grace, far_off)
    claims = [
        Claim(
            token=row["lease_token"],
            facts=facts_of(row),
            action=row["action"],
            content_type=row["content_type"],
            headers=row["headers"],
            attempt=row["dispatch_attempts"],
            give_backs=row["give_backs"],
            queued_at=row["queued_at"],
            run_id=row["run_id"],
            judged=row["admission"] is not None,
        )
        for row in rows
        if row["deed"] == "take"
    ]
    return Taken(
        claims=sorted(claims, key=lambda each: (each.facts.received_at, each.id)),
        deferred=sum(row["deed"] == "defer" for row in rows),
        held=[row["endpoint_id"] for row in rows if row["deed"] == "hold"],
        newest=max((row["available_at"] for row in rows if row["deed"] == "take"), default=None),
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is due (counted up to a bound), for how many seconds, and what is held."""

    due: int
    oldest: float
    held: int


async def backlog(tx: Tx) -> Backlog:
    """Look at the queue."""
    row = await tx.fetchrow(Q["backlog"], _COUNTED)
    if row is None:
        return Backlog(0, 0.0, 0)
    return Backlog(row["due"], max(0.0, row["oldest"] or 0.0), row["held"])


async def bodies(tx: Tx, ids: Sequence[UUID]) -> dict[UUID, bytes]:
    """Read bodies."""
    return {row["id"]: row["body"] for row in await tx.fetch(Q["bodies"], list(ids))}


async def renew(tx: Tx, leases: Sequence[Lease], length: timedelta) -> Collection[UUID]:
    """Renew leases; gives those that are still ours."""
    rows = await tx.fetch(
        Q["renew"], [each.id for each in leases], [each.token for each in leases], length
    )
    return [row["id"] for row in rows]


async def settle(tx: Tx, settlements: Sequence[Settlement]) -> set[UUID]:
    """End attempts; one that is not in the answer was taken over and stays as it is."""
    admissions = [each.ending.admission for each in settlements]
    rows = await tx.fetch(
        Q["settle"],
        [each.lease.id for each in settlements],
        [each.lease.token for each in settlements],
        [each.ending.state.value for each in settlements],
        [each.ending.reason for each in settlements],
        [clipped(each.ending.message) for each in settlements],
        [int(each.ending.given_back) for each in settlements],
        [each.available_at for each in settlements],
        [
            None if each is None or each.judgement is None else each.judgement.value
            for each in admissions
        ],
        [None if each is None else each.run_id for each in admissions],
    )
    return {row["id"] for row in rows}


async def expired(tx: Tx, limit: int) -> list[Expired]:
    """Read claims whose lease has run out, longest first."""
    return [
        Expired(Lease(row["id"], row["lease_token"]), row["dispatch_attempts"], row["now"])
        for row in await tx.fetch(Q["expired"], limit)
    ]


async def take_over(tx: Tx, gone: Sequence[Settlement]) -> set[UUID]:
    """Free claims of holders that are gone; one that was renewed meanwhile is not touched."""
    rows = await tx.fetch(
        Q["take_over"],
        [each.lease.id for each in gone],
        [each.lease.token for each in gone],
        [each.ending.state.value for each in gone],
        [each.ending.reason for each in gone],
        [clipped(each.ending.message) for each in gone],
        [each.available_at for each in gone],
    )
    return {row["id"] for row in rows}
