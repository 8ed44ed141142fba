"""The tables of endpoints and their signing secrets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from reveille_runtime.db import Tx
from reveille_runtime.queries import load_queries
from reveille_webhook.domain.endpoint import Endpoint, Options, Secret
from reveille_webhook.domain.generic import Generic

Q = load_queries(__package__, "endpoints.sql")
# About a second of work; whoever sends a wish waits for ten.
PACED_ANEW = 10_000


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A signing secret as it rests."""

    id: UUID
    endpoint_id: UUID
    sealed: bytes
    live: bool
    used_lately: bool


@dataclass(frozen=True, slots=True)
class FoundEndpoint:
    """A live endpoint that a token led to."""

    id: UUID
    workspace_id: UUID
    provider: str
    max_body_bytes: int
    options: Options
    tripped: bool
    now: datetime
    secrets: tuple[SealedSecret, ...]


@dataclass(frozen=True, slots=True)
class OtherSealed:
    """A secret that does not count at a hook, as it rests."""

    id: UUID
    endpoint_id: UUID
    sealed: bytes


@dataclass(frozen=True, slots=True)
class ExplainedEndpoint:
    """What there is to tell about an endpoint."""

    id: UUID
    workspace_id: UUID | None
    provider: str | None
    max_body_bytes: int | None
    revision: int
    in_grace: bool
    secrets: int
    live_secrets: int
    deleted_at: datetime | None
    updated_at: datetime
    tripped_at: datetime | None
    held: int
    # How far its rate has it reserved moments ahead.
    paced: timedelta | None


async def find(tx: Tx, hashes: Collection[bytes]) -> dict[bytes, FoundEndpoint]:
    """Find live endpoints by the hashes of their tokens, each with its secrets, oldest first."""
    rows = await tx.fetch(Q["find_endpoints"], list(hashes))
    secrets: dict[bytes, list[SealedSecret]] = {row["sha256"]: [] for row in rows}
    for row in rows:
        if row["secret_id"] is not None:
            secrets[row["sha256"]].append(
                SealedSecret(
                    row["secret_id"], row["id"], row["sealed"], row["live"], row["used_lately"]
                )
            )
    return {
        row["sha256"]: FoundEndpoint(
            id=row["id"],
            workspace_id=row["workspace_id"],
            provider=row["provider"],
            max_body_bytes=row["max_body_bytes"],
            options=_options(row),
            tripped=row["tripped_at"] is not None,
            now=row["moment"],
            secrets=tuple(secrets[row["sha256"]]),
        )
        for row in rows
    }


async def disown(tx: Tx, ids: Collection[UUID], length: timedelta) -> None:
    """Take endpoints for unknown, for a while."""
    await tx.execute(Q["disown"], list(ids), length)


async def own(tx: Tx, endpoint_id: UUID) -> bool:
    """Hold a live endpoint against everybody else; False when there is none."""
    return await tx.fetchval(Q["own_endpoint"], endpoint_id) is not None


async def workspace_of(tx: Tx, endpoint_id: UUID) -> UUID | None:
    """Tell whose an endpoint is."""
    found: UUID | None = await tx.fetchval(Q["workspace_of"], endpoint_id)
    return found


async def hold_breakers(tx: Tx, ids: Collection[UUID]) -> set[UUID]:
    """Hold breakers as they are; gives the hooks whose breakers are open."""
    rows = await tx.fetch(Q["hold_breakers"], sorted(ids))
    return {row["id"] for row in rows if row["tripped"]}


async def close_breaker(tx: Tx, endpoint_id: UUID) -> None:
    """Let a hook fire again."""
    await tx.execute(Q["close_breaker"], endpoint_id)


async def other_secrets(
    tx: Tx, endpoint_id: UUID, workspace_id: UUID, limit: int
) -> list[OtherSealed]:
    """Read secrets that do not count at a hook, its own expired ones first."""
    return [
        OtherSealed(row["id"], row["endpoint_id"], row["sealed"])
        for row in await tx.fetch(Q["other_secrets"], endpoint_id, workspace_id, limit)
    ]


async def touch_secrets(tx: Tx, ids: Collection[UUID]) -> None:
    """Note that secrets verified something."""
    await tx.execute(Q["touch_secrets"], list(ids))


async def put(tx: Tx, endpoint: Endpoint) -> None:
    """Store a wish, unless it is not newer; another rate is also that of what waits already."""
    options = endpoint.options
    before = await tx.fetchrow(Q["rate_of"], endpoint.id)
    newer = await tx.fetchval(
        Q["put_endpoint"],
        endpoint.id,
        endpoint.workspace_id,
        endpoint.token_sha256,
        endpoint.previous_token_sha256,
        endpoint.previous_token_expires_at,
        endpoint.provider,
        endpoint.max_body_bytes,
        endpoint.revision,
        None if options.generic is None else asdict(options.generic),
        options.refuses_copies,
        options.rate_per_minute,
        options.hourly_budget,
        options.lane_path,
        list(options.excluded_senders),
        list(options.own_markers),
    )
    if newer is None or before is None:
        # What is not newer changes nothing, and of a hook that was not there nothing waits.
        return
    if before["rate_per_minute"] != options.rate_per_minute:
        await tx.execute(Q["pace_anew"], endpoint.id, PACED_ANEW)


def _options(row: asyncpg.Record) -> Options:
    return Options(
        generic=None if row["generic"] is None else Generic(**row["generic"]),
        refuses_copies=row["refuses_copies"],
        rate_per_minute=row["rate_per_minute"],
        hourly_budget=row["hourly_budget"],
        lane_path=row["lane_path"],
        excluded_senders=tuple(row["excluded_senders"]),
        own_markers=tuple(row["own_markers"]),
    )


async def bury(tx: Tx, endpoint_id: UUID, revision: int) -> None:
    """Leave a tombstone and destroy the secrets, unless the deletion is not newer."""
    if await tx.fetchval(Q["bury_endpoint"], endpoint_id, revision) is not None:
        await tx.execute(Q["destroy_secrets"], endpoint_id)


async def lock(tx: Tx, endpoint_id: UUID) -> bool:
    """Hold a live endpoint; False when there is none."""
    return await tx.fetchval(Q["lock_endpoint"], endpoint_id) is not None


async def add_secret(
    tx: Tx,
    endpoint_id: UUID,
    secret_id: UUID,
    sealed: bytes,
    hint: str,
    expires_at: datetime | None,
) -> None:
    """Add a secret; the same id again changes nothing."""
    await tx.execute(Q["insert_secret"], secret_id, endpoint_id, sealed, hint, expires_at)


async def remove_secret(tx: Tx, endpoint_id: UUID, secret_id: UUID) -> bool:
    """Destroy a secret; False when there was none."""
    return await tx.execute(Q["delete_secret"], endpoint_id, secret_id) > 0


async def list_secrets(tx: Tx, endpoint_id: UUID) -> Sequence[Secret]:
    """List secrets by their hints, oldest first."""
    return [
        Secret(row["id"], row["hint"], row["created_at"], row["expires_at"], row["last_used_at"])
        for row in await tx.fetch(Q["list_secrets"], endpoint_id)
    ]


async def explain(tx: Tx, endpoint_id: UUID) -> ExplainedEndpoint | None:
    """Read what there is to tell about an endpoint."""
    row = await tx.fetchrow(Q["explain_endpoint"], endpoint_id)
    if row is None:
        return None
    return ExplainedEndpoint(
        id=row["id"],
        workspace_id=row["workspace_id"],
        provider=row["provider"],
        max_body_bytes=row["max_body_bytes"],
        revision=row["revision"],
        in_grace=bool(row["in_grace"]),
        secrets=row["secrets"],
        live_secrets=row["live_secrets"],
        deleted_at=row["deleted_at"],
        updated_at=row["updated_at"],
        tripped_at=row["tripped_at"],
        held=row["held"],
        paced=row["paced"],
    )
