"""Store the endpoints that autopilot wants."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from reveille_runtime.db import Database, constraint_name, retrying_transaction
from reveille_runtime.errors import InvalidArgument
from reveille_webhook.domain.endpoint import Endpoint
from reveille_webhook.domain.generic import TOLD, Generic, told
from reveille_webhook.domain.provider import Provider
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import endpoints


class Endpoints:
    """The wanted state of endpoints; whatever is not newer changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def providers(self, generic: Generic | None) -> list[Provider]:
        """List the senders that an endpoint can be for, by name; some as one hook has them."""
        return [
            told(PROVIDERS[name], generic if name in TOLD else None) for name in sorted(PROVIDERS)
        ]

    def refusal_of(self, provider: str) -> str | None:
        """Say what is wrong with the name of a sender; None when it is known."""
        return None if provider in PROVIDERS else f"must be one of: {', '.join(sorted(PROVIDERS))}"

    async def put(self, endpoint: Endpoint) -> None:
        """Store a wish.

        Raises:
            InvalidArgument: the provider is not known, or the token is another endpoint's.
        """
        problem = self.refusal_of(endpoint.provider)
        if problem is not None:
            raise InvalidArgument.of("endpoint.provider", problem)
        try:
            # Whatever is repeated is not newer the second time.
            await retrying_transaction(
                self._database, lambda tx: endpoints.put(tx, endpoint), repeatable=True
            )
        except asyncpg.UniqueViolationError as error:
            if constraint_name(error) != "endpoints_token":
                raise
            raise InvalidArgument.of(
                "endpoint.token_sha256", "belongs to another endpoint", "INVALID_FIELD"
            ) from error

    async def delete(self, endpoint_id: UUID, revision: int) -> None:
        """Leave a tombstone; the secrets are destroyed with it."""
        async with self._database.transaction() as tx:
            await endpoints.bury(tx, endpoint_id, revision)
