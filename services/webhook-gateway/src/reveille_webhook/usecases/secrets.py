"""The signing secrets of endpoints: sealed at rest, several at once, shown by their hints only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.crypto import Sealer
from reveille_runtime.db import Database
from reveille_runtime.errors import InvalidArgument, NotFound
from reveille_runtime.lifecycle import TaskScope
from reveille_runtime.sqlstate import is_transient
from reveille_webhook.domain.endpoint import Secret, hint_of
from reveille_webhook.store import endpoints

_log = logs.get_logger(__name__)


def place_of(endpoint_id: UUID, secret_id: UUID) -> bytes:
    """Name the place that a secret is sealed for; moved elsewhere it does not open."""
    return f"webhook.endpoint_secrets/{endpoint_id}/{secret_id}".encode()


class Secrets:
    """Adds, removes and lists."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def add(
        self, endpoint_id: UUID, secret_id: UUID, secret: bytes, expires_at: datetime | None
    ) -> Secret:
        """Add a secret; the same id again changes nothing.

        Raises:
            NotFound: there is no such endpoint. InvalidArgument: the id is another endpoint's.
        """
        sealed = self._sealer.seal(secret, place_of(endpoint_id, secret_id))
        async with self._database.transaction() as tx:
            if not await endpoints.lock(tx, endpoint_id):
                raise _no_endpoint(endpoint_id)
            await endpoints.add_secret(
                tx, endpoint_id, secret_id, sealed, hint_of(secret), expires_at
            )
            known = await endpoints.list_secrets(tx, endpoint_id)
        for each in known:
            if each.id == secret_id:
                return each
        raise InvalidArgument.of("secret_id", "is the id of another secret", "INVALID_FIELD")

    async def adopt(self, endpoint_id: UUID, secret_id: UUID, secret: bytes) -> bool:
        """Add the first secret of an endpoint, as its sender brings it; False when it has one."""
        sealed = self._sealer.seal(secret, place_of(endpoint_id, secret_id))
        async with self._database.transaction() as tx:
            if not await endpoints.own(tx, endpoint_id):
                return False
            if await endpoints.list_secrets(tx, endpoint_id):
                return False
            await endpoints.add_secret(tx, endpoint_id, secret_id, sealed, hint_of(secret), None)
        return True

    async def remove(self, endpoint_id: UUID, secret_id: UUID) -> None:
        """Destroy a secret.

        Raises:
            NotFound: there is none with this id at this endpoint.
        """
        async with self._database.transaction() as tx:
            if not await endpoints.remove_secret(tx, endpoint_id, secret_id):
                raise NotFound(
                    "NOT_FOUND",
                    f"endpoint {endpoint_id} has no secret {secret_id}",
                    {"endpoint_id": str(endpoint_id), "secret_id": str(secret_id)},
                )

    async def list(self, endpoint_id: UUID) -> Sequence[Secret]:
        """List secrets, oldest first.

        Raises:
            NotFound: there is no such endpoint.
        """
        async with self._database.transaction() as tx:
            if not await endpoints.lock(tx, endpoint_id):
                raise _no_endpoint(endpoint_id)
            return await endpoints.list_secrets(tx, endpoint_id)


class SecretUses:
    """Notes which secrets verified something, in the background: no request waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tasks = TaskScope("secret uses")
        self._due: set[UUID] = set()

    def note(self, secret_id: UUID) -> None:
        """Note one use."""
        if not self._due:
            self._tasks.spawn(self._write())
        self._due.add(secret_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close(grace=1.0)

    async def _write(self) -> None:
        try:
            async with self._database.session() as tx:
                due, self._due = self._due, set()
                await endpoints.touch_secrets(tx, due)
        except Exception as error:
            self._due = set()
            if not is_transient(error):
                raise
            _log.debug("Uses of secrets were not noted.", action="secret.use_not_noted")


def _no_endpoint(endpoint_id: UUID) -> NotFound:
    return NotFound(
        "NOT_FOUND", f"there is no endpoint {endpoint_id}", {"endpoint_id": str(endpoint_id)}
    )
