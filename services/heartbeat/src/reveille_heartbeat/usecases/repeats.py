"""Repeatable creates: which row a caller's request_id has made."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from reveille_runtime.db import Tx
from reveille_runtime.requests import remember, store


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
    if repeatable is None:
        return None
    known = await remember(
        tx,
        repeatable.principal,
        repeatable.method,
        repeatable.request_id,
        repeatable.fingerprint,
    )
    return None if known is None else UUID(bytes=known)


async def made(tx: Tx, repeatable: Repeatable | None, row_id: UUID) -> None:
    """Keep which row was made, in the transaction that makes it."""
    if repeatable is not None:
        await store(
            tx, repeatable.principal, repeatable.method, repeatable.request_id, row_id.bytes
        )
