"""A delivery in the making: what is known of a request so far, and the row that comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from reveille_runtime.ids import new_id
from reveille_webhook.domain import facts
from reveille_webhook.domain.delivery import NewDelivery, clipped
from reveille_webhook.domain.endpoint import OpenEndpoint
from reveille_webhook.domain.facts import NO_EVENT, Naming
from reveille_webhook.domain.provider import Provider
from reveille_webhook.domain.request import Request, storable
from reveille_webhook.domain.states import DeliveryState, SignatureState
from reveille_webhook.domain.verdict import Verdict

_UNNAMED = Naming(NO_EVENT)


@dataclass(frozen=True, slots=True)
class Draft:
    """One request at one hook; `sent` is its body as it came, before it was inflated."""

    endpoint: OpenEndpoint
    provider: Provider
    request: Request
    carrier: Mapping[str, str]
    naming: Naming = _UNNAMED
    lane_key: str | None = None
    sent: bytes | None = None

    def waiting(self, verdict: Verdict) -> NewDelivery:
        """Make the row of a delivery that is to run; one of a tripped hook is held."""
        held = self.endpoint.tripped
        body = self.request.body
        digest = hashlib.sha256(body).digest()
        sent = body if self.sent is None else self.sent
        # Large bodies are hashed once where they came as they are.
        sent_digest = digest if sent is body else hashlib.sha256(sent).digest()
        # Also where the id is signed: whatever hides it, a copy has to find its original.
        content_key = facts.content_key(self.endpoint.id, verdict, sent_digest)
        return self._row(
            verdict.state,
            DeliveryState.HELD if held else DeliveryState.QUEUED,
            "loop_breaker" if held else "",
            "its hook fired beyond its budget" if held else "",
            self.provider.queued_status,
            dedupe_key=self.naming.dedupe_key,
            body_sha256=digest,
            content_key=content_key,
            content_once=content_key is not None and self.endpoint.options.refuses_copies,
        )

    def ended(
        self, verdict: Verdict, state: DeliveryState, reason: str, message: str
    ) -> NewDelivery:
        """Make the row of a delivery that is safe, and will not run."""
        return self._row(verdict.state, state, reason, message, self.provider.status)

    def refused(
        self,
        state: SignatureState,
        reason: str,
        status: int,
        message: str = "",
        notes: tuple[str, ...] = (),
    ) -> NewDelivery:
        """Make the row of a request that is refused; it may not occupy a sender's id."""
        return self._row(
            state, DeliveryState.REJECTED, reason, message, status, signature_notes=notes
        )

    def _row(
        self,
        signature_state: SignatureState,
        state: DeliveryState,
        reason: str,
        message: str,
        status: int,
        *,
        dedupe_key: str | None = None,
        body_sha256: bytes | None = None,
        content_key: bytes | None = None,
        content_once: bool = False,
        signature_notes: tuple[str, ...] = (),
    ) -> NewDelivery:
        request = self.request
        return NewDelivery(
            id=new_id(),
            endpoint_id=self.endpoint.id,
            workspace_id=self.endpoint.workspace_id,
            provider=self.provider.name,
            event=self.naming.event,
            action=self.naming.action,
            actions=self.naming.actions,
            dedupe_key=dedupe_key,
            signature_state=signature_state,
            state=state,
            reason=reason,
            message=clipped(message),
            content_type=storable(request.content_type, 200),
            headers=facts.kept_headers(self.provider, request.headers),
            body=request.body,
            body_sha256=body_sha256 or hashlib.sha256(request.body).digest(),
            response_status=status,
            carrier=self.carrier,
            sender=self.naming.sender,
            retries=self.naming.retries,
            content_key=content_key,
            content_once=content_once,
            lane_key=self.lane_key,
            signature_notes=signature_notes,
        )
