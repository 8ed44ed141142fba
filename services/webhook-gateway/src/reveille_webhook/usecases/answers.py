"""What a sender is told, by how its delivery was judged and by what its provider wants to hear."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from reveille_webhook.domain.delivery import Admission, Answer
from reveille_webhook.domain.provider import Provider, Reply
from reveille_webhook.domain.states import Judgement, Outcome

_SAID: Mapping[Judgement, Outcome] = {
    Judgement.ACCEPTED: Outcome.ACCEPTED,
    Judgement.SKIPPED: Outcome.SKIPPED,
    Judgement.IGNORED: Outcome.IGNORED,
}


class UnparsableError(Exception):
    """An unsigned body that is not what its content type says; nothing was stored."""


class UnknownHookError(Exception):
    """Autopilot does not know the endpoint any more, or not where we believe it to be."""


def safe(
    provider: Provider,
    outcome: Outcome,
    delivery_id: UUID,
    run_id: UUID | None = None,
    reason: str = "",
) -> Answer:
    """Answer a delivery that is stored."""
    waits = outcome in {Outcome.QUEUED, Outcome.HELD}
    status = provider.queued_status if waits else provider.status
    reply = None if provider.body is None else Reply(status, provider.body)
    return Answer(outcome, status, delivery_id, run_id, reason, reply)


def judged(provider: Provider, delivery_id: UUID, admission: Admission) -> Answer:
    """Answer by autopilot's judgement.

    Raises:
        UnknownHookError: it does not know the endpoint.
    """
    if admission.judgement is None:
        return safe(provider, Outcome.QUEUED, delivery_id)
    if admission.judgement is Judgement.UNKNOWN_ENDPOINT:
        raise UnknownHookError
    return safe(
        provider, _SAID[admission.judgement], delivery_id, admission.run_id, admission.reason
    )


def handshake(reply: Reply, delivery_id: UUID | None = None) -> Answer:
    """Answer a sender's question."""
    return Answer(Outcome.HANDSHAKE, reply.status, delivery_id, reply=reply)
