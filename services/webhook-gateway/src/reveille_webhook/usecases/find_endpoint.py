"""Find the endpoint that a token leads to, with its signing secrets opened."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.batcher import Batcher
from reveille_runtime.crypto import SealBroken, Sealer
from reveille_runtime.db import Database
from reveille_runtime.sqlstate import is_transient
from reveille_webhook.domain.endpoint import LiveSecret, OpenEndpoint
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import endpoints
from reveille_webhook.store.endpoints import FoundEndpoint, SealedSecret
from reveille_webhook.usecases.secrets import place_of
from reveille_webhook.usecases.store_delivery import GATHER_SECONDS, MOST_TOGETHER

_PATIENCE = 3.0
# As long as it takes a batch of senders to write what follows their answers.
_LINGER_SECONDS = 0.005
# Not for ever: autopilot may have been the one that was behind.
_DISOWNED = timedelta(minutes=1)
_log = logs.get_logger(__name__)


class FindEndpoint:
    """Looks tokens up by their hashes; requests that come together share one look-up.

    An unknown, a revoked and a deleted token cost the same and look the same.
    """

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer
        self._lookups: Batcher[bytes, OpenEndpoint | None] = Batcher(
            "tokens",
            self._find,
            max_items=MOST_TOGETHER,
            max_in_flight=2,
            gather=GATHER_SECONDS,
            linger=_LINGER_SECONDS,
        )

    async def __call__(self, token: str) -> OpenEndpoint | None:
        """Give the endpoint, or None.

        Raises:
            Exception: the database did not answer.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        return await self._lookups.submit(digest, timeout=_PATIENCE)

    async def disown(self, endpoint_id: UUID) -> None:
        """Take an endpoint for unknown for a while; without a database nothing changes."""
        try:
            async with self._database.session() as tx:
                await endpoints.disown(tx, [endpoint_id], _DISOWNED)
        except Exception as error:
            if not is_transient(error):
                raise

    async def _find(self, hashes: Sequence[bytes]) -> list[OpenEndpoint | None]:
        async with self._database.session() as tx:
            found = await endpoints.find(tx, set(hashes))
        opened = {digest: self._open(each) for digest, each in found.items()}
        return [opened.get(digest) for digest in hashes]

    def _open(self, found: FoundEndpoint) -> OpenEndpoint:
        own = found.secrets
        values = ((each, self._value(each)) for each in own if each.live)
        return OpenEndpoint(
            id=found.id,
            workspace_id=found.workspace_id,
            provider=found.provider,
            max_body_bytes=found.max_body_bytes,
            secrets=tuple(
                LiveSecret(each.id, value, each.used_lately)
                for each, value in values
                if value is not None
            ),
            demands_signature=bool(own) or PROVIDERS[found.provider].demands_secret,
            now=found.now,
            options=found.options,
            tripped=found.tripped,
        )

    def _value(self, secret: SealedSecret) -> bytes | None:
        try:
            return self._sealer.open(secret.sealed, place_of(secret.endpoint_id, secret.id))
        except SealBroken as error:
            # It still demands a signature, and nothing can match it.
            _log.error(
                "A signing secret cannot be opened; requests that it would verify are refused.",
                action="secret.broken",
                endpoint_id=str(secret.endpoint_id),
                secret_id=str(secret.id),
                cause=str(error),
            )
            return None
