"""Receive a request: verify, read, store, have it judged, answer. In this order, always.

What is answered with success is durable; the bytes that are verified are the bytes that are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import assert_never

from reveille_runtime.ids import new_id
from reveille_webhook.domain import facts, parsing
from reveille_webhook.domain.delivery import Admission, Answer, Known, NewDelivery, clipped
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.ratelimit import Sampler
from reveille_webhook.domain.request import Request, storable
from reveille_webhook.domain.scheme import Provider
from reveille_webhook.domain.signature import verify
from reveille_webhook.domain.states import DeliveryState, Judgement, Outcome, SignatureState
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.usecases.admit import Admit
from reveille_webhook.usecases.secrets import SecretUses
from reveille_webhook.usecases.store_delivery import StoreDelivery

STORE_PATIENCE = 5.0
_BAD: Mapping[SignatureState, str] = {
    SignatureState.INVALID: "invalid_signature",
    SignatureState.MISSING: "missing_signature",
}
_SAID: Mapping[Judgement, Outcome] = {
    Judgement.ACCEPTED: Outcome.ACCEPTED,
    Judgement.SKIPPED: Outcome.SKIPPED,
    Judgement.IGNORED: Outcome.IGNORED,
}


class UnparsableError(Exception):
    """An unsigned body that is not what its content type says; nothing was stored."""


class UnknownHookError(Exception):
    """Autopilot does not know the endpoint any more, or not where we believe it to be."""


class Receive:
    """Takes one request at an endpoint."""

    def __init__(
        self,
        store: StoreDelivery,
        admit: Admit,
        uses: SecretUses,
        samples: Sampler,
        budget: float,
        dispatch_soon: Callable[[], None],
    ) -> None:
        self._store = store
        self._admit = admit
        self._uses = uses
        self._samples = samples
        self._budget = budget
        self._dispatch_soon = dispatch_soon

    async def __call__(
        self, endpoint: OpenEndpoint, request: Request, carrier: Mapping[str, str]
    ) -> Answer:
        """Receive, and say what the sender is answered.

        Raises:
            UnparsableError, UnknownHookError: see there. Any other exception: the database did not
                take the row.
        """
        started = asyncio.get_running_loop().time()
        provider = PROVIDERS[endpoint.provider]
        checked = self._verify(endpoint, provider, request)
        if checked in _BAD:
            return await self._reject(endpoint, provider, request, checked, carrier)
        parsed = parsing.parse(request.body, request.content_type)
        if parsed.problem and checked is SignatureState.NOT_REQUIRED:
            raise UnparsableError(parsed.problem)
        naming = facts.name(provider, request.headers, parsed.members)
        delivery = _delivery(
            endpoint,
            provider,
            request,
            naming,
            checked,
            carrier,
            state=DeliveryState.IGNORED if parsed.problem else DeliveryState.QUEUED,
            reason="unparsable" if parsed.problem else "",
            message=parsed.problem,
            status=200 if parsed.problem else provider.queued_status,
        )
        known = await self._store(delivery, STORE_PATIENCE)
        if parsed.problem:
            return Answer(Outcome.IGNORED, 200, delivery.id, reason="unparsable")
        left = self._budget - (asyncio.get_running_loop().time() - started)
        if known.is_copy:
            return await self._answer_copy(known, left)
        admission = await self._admit.for_request(known.facts, max(left, 0.05), answers_with=200)
        return self._answer(provider, known, admission)

    def _verify(
        self, endpoint: OpenEndpoint, provider: Provider, request: Request
    ) -> SignatureState:
        if not endpoint.demands_signature:
            return SignatureState.NOT_REQUIRED
        checked, matched = verify(
            provider.signature,
            [each.value for each in endpoint.secrets],
            request.headers,
            request.body,
        )
        if matched is not None and not endpoint.secrets[matched].used_lately:
            self._uses.note(endpoint.secrets[matched].id)
        return checked

    async def _reject(
        self,
        endpoint: OpenEndpoint,
        provider: Provider,
        request: Request,
        checked: SignatureState,
        carrier: Mapping[str, str],
    ) -> Answer:
        """Keep a request that is not what it claims, for people to look at; nothing will run."""
        if not self._samples.keeps(str(endpoint.id), asyncio.get_running_loop().time()):
            return Answer(Outcome.REJECTED, 401, reason=_BAD[checked])
        # Its body is not read: nobody vouches for it. Nor may it occupy a sender's id.
        naming = facts.name(provider, request.headers, {})
        delivery = _delivery(
            endpoint,
            provider,
            request,
            facts.Naming(naming.event, "", (), None),
            checked,
            carrier,
            state=DeliveryState.REJECTED,
            reason=_BAD[checked],
            message="",
            status=401,
        )
        await self._store(delivery, STORE_PATIENCE)
        return Answer(Outcome.REJECTED, 401, delivery.id, reason=_BAD[checked])

    async def _answer_copy(self, known: Known, left: float) -> Answer:
        run_id = known.run_id
        if not known.judged:
            # The original was stored, but nobody heard what autopilot says: ask in its place.
            admission = await self._admit.for_request(
                known.facts, max(left, 0.05), answers_with=None
            )
            run_id = admission.run_id or run_id
            self._dispatch_soon()
        return Answer(Outcome.DUPLICATE, 200, known.facts.delivery_id, run_id)

    def _answer(self, provider: Provider, known: Known, admission: Admission) -> Answer:
        delivery_id = known.facts.delivery_id
        match admission.judgement:
            case None:
                return Answer(Outcome.QUEUED, provider.queued_status, delivery_id)
            case Judgement.UNKNOWN_ENDPOINT:
                raise UnknownHookError
            case Judgement.ACCEPTED | Judgement.SKIPPED | Judgement.IGNORED:
                if admission.judgement is Judgement.ACCEPTED:
                    self._dispatch_soon()
                return Answer(
                    _SAID[admission.judgement], 200, delivery_id, admission.run_id, admission.reason
                )
            case _:
                assert_never(admission.judgement)


def _delivery(
    endpoint: OpenEndpoint,
    provider: Provider,
    request: Request,
    naming: facts.Naming,
    checked: SignatureState,
    carrier: Mapping[str, str],
    *,
    state: DeliveryState,
    reason: str,
    message: str,
    status: int,
) -> NewDelivery:
    return NewDelivery(
        id=new_id(),
        endpoint_id=endpoint.id,
        workspace_id=endpoint.workspace_id,
        provider=provider.name,
        event=naming.event,
        action=naming.action,
        actions=naming.actions,
        dedupe_key=naming.dedupe_key,
        signature_state=checked,
        state=state,
        reason=reason,
        message=clipped(message),
        content_type=storable(request.content_type, 200),
        headers=facts.kept_headers(provider, request.headers),
        body=request.body,
        body_sha256=hashlib.sha256(request.body).digest(),
        response_status=status,
        carrier=carrier,
    )
