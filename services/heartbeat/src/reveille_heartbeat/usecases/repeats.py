"""Repeatable creates: which row a caller's request_id has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_runtime.db import Tx
from reveille_runtime.requests import remember, store

_ID = 16


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that its caller may send again."""

    principal: str
    method: str
    request_id: str
    fingerprint: bytes


async def made_before(tx: Tx, repeatable: Repeatable | None) -> UUID | None:
    """Give the row that this request made before; None means: make it, then `made`.

    Raises:
        InvalidArgument: the id was used for another request.
    """
    known = await made_all_before(tx, repeatable)
    return None if known is None else known[0]


async def made(tx: Tx, repeatable: Repeatable | None, row_id: UUID) -> None:
    """Keep which row was made, in the transaction that makes it."""
    await made_all(tx, repeatable, [row_id])


async def made_all_before(tx: Tx, repeatable: Repeatable | None) -> list[UUID] | None:
    """Give all rows that this request made before, in their order.

    Raises:
        InvalidArgument: the id was used for another request.
    """
    if repeatable is None:
        return None
    known = await remember(
        tx,
        repeatable.principal,
        repeatable.method,
        repeatable.request_id,
        repeatable.fingerprint,
    )
    if known is None:
        return None
    return [UUID(bytes=known[at : at + _ID]) for at in range(0, len(known), _ID)]


async def made_all(tx: Tx, repeatable: Repeatable | None, row_ids: Sequence[UUID]) -> None:
    """Keep which rows were made, in the transaction that makes them."""
    if repeatable is not None:
        answer = b"".join(row_id.bytes for row_id in row_ids)
        await store(tx, repeatable.principal, repeatable.method, repeatable.request_id, answer)
