"""Signing secrets: this service judges the right and records the edit; the gateway keeps them.

A secret is passed through and rests nowhere here, not even with its request_id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_autopilot.domain.states import Change
from reveille_autopilot.usecases.peers import dependency_away, is_refusal
from reveille_autopilot.usecases.publish import publish
from reveille_autopilot.usecases.relays import Relays
from reveille_autopilot.usecases.standing import not_found
from reveille_autopilot.usecases.triggers import lock_webhook, readable_webhook
from reveille_runtime.access import Actor
from reveille_runtime.crash import crash_point
from reveille_runtime.crypto import Sealer
from reveille_runtime.db import Database, Tx
from reveille_runtime.errors import DomainError, InvalidArgument, NotFound, Unavailable
from reveille_runtime.ids import new_id
from reveille_runtime.requests import once
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp

if TYPE_CHECKING:
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret to add; its value is never shown, not even by accident."""

    trigger_id: UUID
    value: bytes = field(repr=False)
    expires_at: datetime | None


class SigningSecrets:
    """Passes secrets through to the gateway."""

    def __init__(
        self, db: Database, endpoints: EndpointServiceAsyncStub, relays: Relays, sealer: Sealer
    ) -> None:
        self._db = db
        self._endpoints = endpoints
        self._relays = relays
        self._sealer = sealer

    async def add(
        self, actor: Actor, new: NewSecret, request: pb.AddSigningSecretRequest
    ) -> pb.AddSigningSecretResponse:
        """Add a live secret. The request_id keeps its id, so that a repeat adds the same one.

        Raises:
            InvalidArgument: it would have expired already.
        """
        async with self._db.session() as tx:
            await lock_webhook(tx, actor, new.trigger_id)
        await self._endpoint_ready(new.trigger_id)

        async def make(tx: Tx) -> pb.AddSigningSecretResponse:
            rule, editor, now, trigger = await lock_webhook(tx, actor, new.trigger_id)
            if new.expires_at is not None and new.expires_at <= now:
                raise InvalidArgument.of("expire_time", "must lie in the future")
            await publish(tx, rule, Change.SECRET_ADDED, editor, now, trigger_id=trigger.id)
            return pb.AddSigningSecretResponse(
                signing_secret=pb.SigningSecret(secret_id=str(new_id()))
            )

        async with self._db.transaction() as tx:
            answer = await once(
                tx,
                principal=actor.principal,
                method="AddSigningSecret",
                request=self._marked(request),
                response=pb.AddSigningSecretResponse,
                make=lambda: make(tx),
            )
        crash_point("autopilot.publish.after_commit")
        with _asking():
            response = await self._endpoints.AddSecret(
                endpoint_pb.AddSecretRequest(
                    endpoint_id=str(new.trigger_id),
                    secret_id=answer.signing_secret.secret_id,
                    secret=new.value,
                    expire_time=to_timestamp(new.expires_at),
                )
            )
        return pb.AddSigningSecretResponse(signing_secret=_shown(response.secret))

    def _marked(self, request: pb.AddSigningSecretRequest) -> pb.AddSigningSecretRequest:
        """Put a mark in the secret's place: what is kept to know a repeat must not give it away."""
        marked = pb.AddSigningSecretRequest()
        marked.CopyFrom(request)
        marked.secret = self._sealer.mark(request.secret, request.trigger_id.encode())
        return marked

    async def remove(self, actor: Actor, trigger_id: UUID, secret_id: UUID) -> None:
        """Destroy a secret that the trigger has."""
        async with self._db.session() as tx:
            await lock_webhook(tx, actor, trigger_id)
        if str(secret_id) not in {each.secret_id for each in await self._list(trigger_id)}:
            raise not_found("signing secret", secret_id)
        async with self._db.transaction() as tx:
            rule, editor, now, trigger = await lock_webhook(tx, actor, trigger_id)
            await publish(tx, rule, Change.SECRET_REMOVED, editor, now, trigger_id=trigger.id)
        crash_point("autopilot.publish.after_commit")
        try:
            with _asking():
                await self._endpoints.RemoveSecret(
                    endpoint_pb.RemoveSecretRequest(
                        endpoint_id=str(trigger_id), secret_id=str(secret_id)
                    )
                )
        except NotFound:
            # Somebody else removed it between our look and this call: it is gone, as wanted.
            return

    async def page(self, actor: Actor, trigger_id: UUID) -> Sequence[pb.SigningSecret]:
        """List the secrets of a trigger by their hints."""
        async with self._db.session() as tx:
            await readable_webhook(tx, actor, trigger_id)
        return [_shown(secret) for secret in await self._list(trigger_id)]

    async def _list(self, trigger_id: UUID) -> Sequence[endpoint_pb.Secret]:
        await self._endpoint_ready(trigger_id)
        with _asking():
            response = await self._endpoints.ListSecrets(
                endpoint_pb.ListSecretsRequest(endpoint_id=str(trigger_id))
            )
        return response.secrets

    async def _endpoint_ready(self, trigger_id: UUID) -> None:
        """Have the gateway know the endpoint before it is asked about its secrets."""
        if not await self._relays.endpoints.push_now(trigger_id):
            raise Unavailable(
                "DEPENDENCY_UNAVAILABLE",
                "the gateway does not know this endpoint yet",
                {"service": "webhook"},
                retry_after=1.0,
            )


@contextmanager
def _asking() -> Iterator[None]:
    """Pass the gateway's refusals on; everything else means that it cannot be asked now."""
    try:
        with as_domain_errors():
            yield
    except DomainError as error:
        if is_refusal(error):
            raise
        raise dependency_away("the gateway", error) from error


def _shown(secret: endpoint_pb.Secret) -> pb.SigningSecret:
    shown = pb.SigningSecret(secret_id=secret.secret_id, hint=secret.hint)
    for name in ("create_time", "expire_time", "last_use_time"):
        if secret.HasField(name):
            getattr(shown, name).CopyFrom(getattr(secret, name))
    return shown
