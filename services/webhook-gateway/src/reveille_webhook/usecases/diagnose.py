"""Find why a signature failed, while the request is here: signatures are never kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from reveille_runtime import logs
from reveille_runtime.crypto import SealBroken, Sealer
from reveille_runtime.db import Database
from reveille_runtime.sqlstate import is_transient
from reveille_webhook.domain.diagnosis import Finding, OtherSecret, diagnose
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import endpoints
from reveille_webhook.store.endpoints import OtherSealed
from reveille_webhook.usecases.secrets import place_of

# Of one workspace; the newest are the likeliest to be mixed up.
_MOST_SECRETS = 200
# Whoever comes while so many are looked at is refused unexplained: requests are not kept waiting.
_MOST_TOGETHER = 8
_log = logs.get_logger(__name__)


class Diagnose:
    """Looks once; for requests of which a row is kept only.

    It takes a thread, for senders are served meanwhile, and one request after another: nobody
    vouches for any of them, and each takes its time and memory.
    """

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer
        self._turn = asyncio.Lock()
        self._looking = 0

    async def __call__(
        self, endpoint: OpenEndpoint, provider: Provider, request: Request
    ) -> tuple[str, ...]:
        """Give notes on what was found; none when it could not be looked.

        It raises nothing: the request is refused, and kept, whether anybody knows why or not.
        """
        if self._looking >= _MOST_TOGETHER:
            return ()
        self._looking += 1
        try:
            others = await self._others(endpoint)
            async with self._turn:
                found = await asyncio.to_thread(self._look, endpoint, provider, request, others)
        except Exception:  # noqa: BLE001 - whatever a sender did to it, the answer stands
            _log.exception("A signature could not be explained.", action="hook.not_explained")
            return ()
        finally:
            self._looking -= 1
        return tuple(each.note.replace(" ", "_") for each in found)

    async def _others(self, endpoint: OpenEndpoint) -> Sequence[OtherSealed]:
        """Read the secrets that do not count here; none while the database is away."""
        try:
            async with self._database.session() as tx:
                return await endpoints.other_secrets(
                    tx, endpoint.id, endpoint.workspace_id, _MOST_SECRETS
                )
        except Exception as error:
            if not is_transient(error):
                raise
            return []

    def _look(
        self,
        endpoint: OpenEndpoint,
        provider: Provider,
        request: Request,
        others: Sequence[OtherSealed],
    ) -> Sequence[Finding]:
        return diagnose(
            provider,
            [each.value for each in endpoint.secrets],
            list(self._opened(endpoint, others)),
            request,
            endpoint.now.timestamp(),
            list(PROVIDERS.values()),
        )

    def _opened(
        self, endpoint: OpenEndpoint, others: Sequence[OtherSealed]
    ) -> Iterator[OtherSecret]:
        for each in others:
            try:
                value = self._sealer.open(each.sealed, place_of(each.endpoint_id, each.id))
            except SealBroken:
                continue
            own = each.endpoint_id == endpoint.id
            yield OtherSecret("" if own else str(each.endpoint_id), value)
