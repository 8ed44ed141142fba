"""Find why a signature failed, while the request is here: signatures are never kept."""

from __future__ import annotations

from reveille_runtime import logs
from reveille_runtime.crypto import SealBroken, Sealer
from reveille_runtime.db import Database
from reveille_runtime.sqlstate import is_transient
from reveille_webhook.domain.diagnosis import OtherSecret, diagnose
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import endpoints
from reveille_webhook.usecases.secrets import place_of

# Of one workspace; the newest are the likeliest to be mixed up.
_MOST_SECRETS = 20
_log = logs.get_logger(__name__)


class Diagnose:
    """Looks once; for requests of which a row is kept only."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def __call__(
        self, endpoint: OpenEndpoint, provider: Provider, request: Request
    ) -> tuple[str, ...]:
        """Give notes on what was found; none when it could not be looked.

        It raises nothing: the request is refused, and kept, whether anybody knows why or not.
        """
        try:
            found = diagnose(
                provider,
                [each.value for each in endpoint.secrets],
                await self._others(endpoint),
                request,
                endpoint.now.timestamp(),
                list(PROVIDERS.values()),
            )
        except Exception:  # noqa: BLE001 - whatever a sender did to it, the answer stands
            _log.exception("A signature could not be explained.", action="hook.not_explained")
            return ()
        return tuple(each.note.replace(" ", "_") for each in found)

    async def _others(self, endpoint: OpenEndpoint) -> list[OtherSecret]:
        """Open the secrets that do not count here; none while the database is away."""
        try:
            async with self._database.session() as tx:
                sealed = await endpoints.other_secrets(
                    tx, endpoint.id, endpoint.workspace_id, _MOST_SECRETS
                )
        except Exception as error:
            if not is_transient(error):
                raise
            return []
        found = []
        for each in sealed:
            try:
                value = self._sealer.open(each.sealed, place_of(each.endpoint_id, each.id))
            except SealBroken:
                continue
            own = each.endpoint_id == endpoint.id
            found.append(OtherSecret("" if own else str(each.endpoint_id), value))
        return found
