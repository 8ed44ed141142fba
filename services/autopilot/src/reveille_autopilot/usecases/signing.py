"""Signing secrets: this service judges the right and records the edit; the gateway keeps them.

A secret is passed through and rests nowhere here, not even with its request_id.

The record, a rule version, tells of what the gateway has done and of nothing else: an edit is begun
in one transaction, made by the gateway, and recorded in another. Where the answer of the gateway
or the end of this process comes between, the next edit of the trigger's secrets looks, or
else a loop does, and records what was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from reveille.autopilot.v1 import autopilot_service_pb2 as pb
from reveille.webhook.v1 import endpoint_service_pb2 as endpoint_pb
from reveille_autopilot.domain.states import Change
from reveille_autopilot.store import autopilots, secret_edits, triggers
from reveille_autopilot.store.secret_edits import SecretEdit
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
from reveille_runtime.isolation import isolated
from reveille_runtime.lockorder import LockOrder
from reveille_runtime.requests import once
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp

if TYPE_CHECKING:
    from reveille.webhook.v1.endpoint_service_pb2_grpc import EndpointServiceAsyncStub

# How often a look is taken at edits of which nobody heard whether they were made.
LOOK_SECONDS = 600.0
# Longer than any caller waits.
_TAKING = timedelta(minutes=1)
# What was not made by then is not made any more, unless somebody asks again.
_WORTH_A_LOOK = timedelta(days=2)
_LOOKS = 200


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
            NotFound: it is a repeat, and what the first call added was removed since.
        """
        async with self._db.session() as tx:
            await lock_webhook(tx, actor, new.trigger_id)
        await self._look(new.trigger_id)

        async def begin(tx: Tx) -> pb.AddSigningSecretResponse:
            _, editor, now, trigger = await lock_webhook(tx, actor, new.trigger_id)
            if new.expires_at is not None and new.expires_at <= now:
                raise InvalidArgument.of("expire_time", "must lie in the future")
            secret_id = new_id()
            added = SecretEdit(trigger.id, secret_id, Change.SECRET_ADDED)
            await secret_edits.begin(tx, added, editor)
            return pb.AddSigningSecretResponse(
                signing_secret=pb.SigningSecret(secret_id=str(secret_id))
            )

        async with self._db.transaction() as tx:
            begun = await once(
                tx,
                principal=actor.principal,
                method="AddSigningSecret",
                request=self._marked(request),
                response=pb.AddSigningSecretResponse,
                make=lambda: begin(tx),
            )
            secret_id = UUID(begun.signing_secret.secret_id)
            if await secret_edits.is_removed(tx, new.trigger_id, secret_id):
                # The gateway would take it for a new one.
                raise not_found("signing secret", secret_id)
        crash_point("autopilot.secret.before_call")
        with _asking():
            response = await self._endpoints.AddSecret(
                endpoint_pb.AddSecretRequest(
                    endpoint_id=str(new.trigger_id),
                    secret_id=str(secret_id),
                    secret=new.value,
                    expire_time=to_timestamp(new.expires_at),
                )
            )
        crash_point("autopilot.secret.before_record")
        await self._record(SecretEdit(new.trigger_id, secret_id, Change.SECRET_ADDED))
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
        removed = SecretEdit(trigger_id, secret_id, Change.SECRET_REMOVED)
        present, recorded = await self._look(trigger_id)
        if secret_id not in present:
            if removed in recorded:
                # An earlier call of whose success nobody heard: the caller repeats it.
                return
            raise not_found("signing secret", secret_id)
        async with self._db.transaction() as tx:
            _, editor, _, _ = await lock_webhook(tx, actor, trigger_id)
            await secret_edits.begin(tx, removed, editor)
        crash_point("autopilot.secret.before_call")
        # Where it is not found, somebody else removed it since our look, or this very call did and
        # was repeated below us: it is gone, as wanted.
        with suppress(NotFound), _asking():
            await self._endpoints.RemoveSecret(
                endpoint_pb.RemoveSecretRequest(
                    endpoint_id=str(trigger_id), secret_id=str(secret_id)
                )
            )
        crash_point("autopilot.secret.before_record")
        await self._record(removed)

    async def page(self, actor: Actor, trigger_id: UUID) -> Sequence[pb.SigningSecret]:
        """List the secrets of a trigger by their hints."""
        async with self._db.session() as tx:
            await readable_webhook(tx, actor, trigger_id)
        return [_shown(secret) for secret in await self._list(trigger_id)]

    async def record_unheard(self) -> None:
        """Record what nobody heard of and nobody asked for again; a step of a loop.

        What the gateway cannot be asked about now is looked at next time.
        """
        async with self._db.session() as tx:
            found = await secret_edits.unheard(tx, _TAKING, _WORTH_A_LOOK, _LOOKS)
        for trigger_id in found:
            with isolated("secrets.look", trigger_id=str(trigger_id)), suppress(Unavailable):
                await self._look(trigger_id)

    async def _look(self, trigger_id: UUID) -> tuple[set[UUID], list[SecretEdit]]:
        """Look what secrets a trigger has, and record what was done to them without being heard.

        What was begun and does not show stays open: the call may be under way, or be repeated.
        """
        async with self._db.session() as tx:
            # Before the look, so that it is one at what became of them.
            begun = await secret_edits.unrecorded(tx, trigger_id)
        present = {UUID(each.secret_id) for each in await self._list(trigger_id)}
        made = [
            edit
            for edit in begun
            if (edit.secret_id in present) is (edit.change is Change.SECRET_ADDED)
        ]
        for edit in made:
            await self._record(edit)
        return present, made

    async def _record(self, edit: SecretEdit) -> None:
        """Write the version of an edit that the gateway has made, once.

        Nobody's right is asked for any more: it is made, whatever became of the rule meanwhile.
        """
        async with self._db.transaction() as tx:
            trigger = await triggers.get(tx, edit.trigger_id)
            if trigger is None:
                raise not_found("trigger", edit.trigger_id)
            rule = await autopilots.lock(tx, LockOrder(), trigger.autopilot_id)
            if rule is None:
                raise not_found("autopilot", trigger.autopilot_id)
            now = await autopilots.now(tx)
            made = await secret_edits.record(tx, edit, now)
            if made is None:
                # A repeat of the call, or another that looked, was here first.
                return
            editor, edited = made
            await publish(tx, rule, edit.change, editor, now, trigger_id=trigger.id, edited=edited)

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
