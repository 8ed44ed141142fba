"""Requests that may be repeated: the same request_id gives the first answer and no second effect.

A key is (principal, method, request_id). The answer is stored in the transaction of the effect, so
both exist or neither; a repeat that comes while the first is at work waits for it. The table is
that of `requests_ddl.sql`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from reveille_runtime.errors import Aborted, FailedPrecondition, InvalidArgument
from reveille_runtime.queries import load_queries

if TYPE_CHECKING:
    from reveille_runtime.crypto import Sealer
    from reveille_runtime.db import Database, Tx

R = TypeVar("R", bound=Message)
Q = load_queries("reveille_runtime", "requests.sql")
# How long an answer that shows a credential may be given again.
CREDENTIAL_LIFETIME = timedelta(minutes=10)
# How long a request id is known at least.
KEEP = timedelta(hours=24)
_MAX_ID = 128


def fingerprint(request: Message) -> bytes:
    """Digest what was asked, apart from the request_id itself."""
    body = type(request)()
    body.CopyFrom(request)
    body.ClearField("request_id")
    return hashlib.sha256(body.SerializeToString(deterministic=True)).digest()


async def remember(
    tx: Tx,
    principal: str,
    method: str,
    request_id: str,
    fingerprint: bytes,
    *,
    sealer: Sealer | None = None,
) -> bytes | None:
    """Reserve the key for this transaction: None means do the work, then `store` its answer.

    Otherwise gives the stored answer.

    Raises:
        InvalidArgument: REQUEST_ID_REUSED, the id came with another body before; or
            INVALID_REQUEST_ID, it is longer than 128 characters.
        FailedPrecondition: REQUEST_ANSWER_EXPIRED, it was done and its answer is not kept any more.
    """
    if not 0 < len(request_id) <= _MAX_ID:
        raise InvalidArgument.of("request_id", "1 to 128 characters", "INVALID_REQUEST_ID")
    key = (principal, method, request_id)
    if await tx.fetchval(Q["request_reserve"], *key, fingerprint):
        return None
    row = await tx.fetchrow(Q["request_find"], *key)
    if row is None:
        # Retention removed it between the two statements.
        raise Aborted("REQUEST_CONFLICT", "the request was just forgotten; send it again")
    if row["fingerprint"] != fingerprint:
        raise InvalidArgument.of(
            "request_id", "was used for a request with another content", "REQUEST_ID_REUSED"
        )
    if row["response"] is None or row["expired"]:
        raise FailedPrecondition(
            "REQUEST_ANSWER_EXPIRED",
            "this request was carried out; its answer showed a credential and is not kept",
            {"request_id": request_id},
        )
    stored: bytes = row["response"]
    return stored if sealer is None else sealer.open(stored, _place(*key))


async def store(
    tx: Tx,
    principal: str,
    method: str,
    request_id: str,
    response: bytes,
    *,
    sealer: Sealer | None = None,
    expires_in: timedelta | None = None,
) -> None:
    """Keep the answer for repeats; sealed and for `expires_in` only if it shows a credential."""
    key = (principal, method, request_id)
    kept = response if sealer is None else sealer.seal(response, _place(*key))
    await tx.execute(Q["request_answer"], *key, kept, expires_in)


async def once(
    tx: Tx,
    *,
    principal: str,
    method: str,
    request: Message,
    response: type[R],
    make: Callable[[], Awaitable[R]],
    credential_sealer: Sealer | None = None,
) -> R:
    """Answer a request that carries a `request_id` field: `make` runs at most once per id.

    `make` works in the same transaction. With `credential_sealer` the answer is kept encrypted and
    for CREDENTIAL_LIFETIME only. A request without an id is simply carried out. Raises what
    `remember` raises.
    """
    request_id: str = getattr(request, "request_id")  # noqa: B009 - not a field of every message
    if not request_id:
        return await make()
    digest = fingerprint(request)
    known = await remember(tx, principal, method, request_id, digest, sealer=credential_sealer)
    if known is not None:
        return response.FromString(known)
    answer = await make()
    await store(
        tx,
        principal,
        method,
        request_id,
        answer.SerializeToString(),
        sealer=credential_sealer,
        expires_in=None if credential_sealer is None else CREDENTIAL_LIFETIME,
    )
    return answer


async def prune(db: Database, keep: timedelta = KEEP, limit: int = 1000) -> int:
    """Wipe expired answers and remove old ids, up to `limit` each; less than that means done."""
    async with db.session() as tx:
        forgotten = await tx.execute(Q["request_forget"], limit)
        removed = await tx.execute(Q["request_prune"], keep, limit)
        return max(forgotten, removed)


def _place(principal: str, method: str, request_id: str) -> bytes:
    return "\0".join(("requests", principal, method, request_id)).encode()
