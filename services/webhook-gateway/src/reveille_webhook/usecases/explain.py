"""Tell what the gateway knows about a delivery or an endpoint, in words an operator can act on."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from reveille_runtime.access import Actor, current_actor
from reveille_runtime.db import Database
from reveille_runtime.explain import Finding, iso, span_of, uuid_or_none
from reveille_webhook.domain.delivery import Delivery
from reveille_webhook.domain.diagnosis import finding_of, text_of
from reveille_webhook.domain.states import DeliveryState, Judgement
from reveille_webhook.providers.table import PROVIDERS
from reveille_webhook.store import deliveries, endpoints
from reveille_webhook.store.endpoints import ExplainedEndpoint

_KEY = "webhook:"
# So long a delivery may be due before anybody has to wonder, in seconds.
_MOMENTS = 5.0
_REJECTED = {
    "invalid_signature": "its signature matches no live secret of this hook",
    "missing_signature": "it carries no signature, and this hook demands one",
}


class Explain:
    """Explains deliveries (by their id, their run's or their occurrence key) and endpoints."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, wanted: str) -> list[Finding]:
        """Give what is known and is the caller's to know."""
        # A run that was given up is followed by one whose key ends in #2.
        found = uuid_or_none(wanted.removeprefix(_KEY).partition("#")[0])
        if found is None:
            return []
        actor = current_actor()
        async with self._database.session() as tx:
            rows = await deliveries.explain(tx, found)
            endpoint = None if wanted.startswith(_KEY) else await endpoints.explain(tx, found)
        findings = [
            _delivery(row, now) for row, now in rows if actor.role_in(row.workspace_id) is not None
        ]
        if endpoint is not None and _may_see(actor, endpoint):
            findings.append(_endpoint(endpoint, rows[0][0] if rows else None))
        return findings


def _may_see(actor: Actor, endpoint: ExplainedEndpoint) -> bool:
    # A tombstone of an endpoint that never was says nothing about any workspace.
    return endpoint.workspace_id is None or actor.role_in(endpoint.workspace_id) is not None


def _endpoint(endpoint: ExplainedEndpoint, newest: Delivery | None) -> Finding:
    """Say whether a hook takes requests, and on what terms."""
    if endpoint.deleted_at is not None:
        state, text = "deleted", "the hook is deleted: every request gets 404"
    else:
        state = "accepting"
        text = (
            f"the hook takes {endpoint.provider} requests of up to {endpoint.max_body_bytes} bytes"
        )
        if not endpoint.secrets and _demands_secret(endpoint):
            state = "refusing"
            text = "every request is refused: the hook has no secret, and its sender needs one"
        elif not endpoint.secrets:
            text += "; it has no signing secret, so its address is the only credential"
        elif not endpoint.live_secrets:
            state = "refusing"
            text = "every request is refused: all signing secrets of the hook have expired"
        else:
            text += f", signed with one of {endpoint.live_secrets} live secrets"
        if endpoint.tripped_at is not None:
            state = "holding"
            text += (
                f"; since {iso(endpoint.tripped_at)} the loop breaker holds what comes in, because "
                f"it fired beyond its budget of the hour: {endpoint.held} are held"
            )
        if endpoint.in_grace:
            text += "; its address before the last rotation still counts"
        if newest is None:
            text += "; nothing has come in yet"
    if endpoint.held and state != "holding":
        # Autopilot was away when they were purged, for instance.
        text += (
            f"; the loop breaker is closed, but {endpoint.held} that it held are still to be "
            "released or purged"
        )
    return Finding(
        time=endpoint.deleted_at or endpoint.updated_at,
        subject="hook",
        subject_id=str(endpoint.id),
        state=state,
        text=f"{text} (revision {endpoint.revision})",
        rows=(("webhook.endpoints", str(endpoint.id)),),
        command=(
            f"reveille triggers secrets add {endpoint.id}"
            if state == "refusing"
            else f"reveille deliveries release {endpoint.id}"
            if endpoint.held or state == "holding"
            else ""
        ),
    )


def _demands_secret(endpoint: ExplainedEndpoint) -> bool:
    sender = PROVIDERS.get(endpoint.provider or "")
    return sender is not None and sender.demands_secret


def _delivery(delivery: Delivery, now: datetime) -> Finding:
    """Say what became of a request."""
    name = delivery.event + (f".{delivery.action}" if delivery.action else "")
    came = f"“{name}” came in at {iso(delivery.received_at)}"
    match delivery.state:
        case DeliveryState.QUEUED:
            state, text = _waiting(delivery, now)
        case DeliveryState.HELD:
            state = "held"
            text = "the loop breaker holds it: its hook fired beyond its budget of the hour"
        case DeliveryState.DISPATCHED:
            skipped = delivery.judgement is Judgement.SKIPPED
            state = "skipped" if skipped else "dispatched"
            text = (
                f"its run was skipped: {delivery.message or delivery.reason}"
                if skipped
                else "it was handed to its run"
            )
        case DeliveryState.IGNORED:
            state = "ignored"
            text = f"it was ignored: {delivery.message or delivery.reason}"
            if delivery.reason == "autopilot_paused":
                text += "; replay it once the autopilot is active"
        case DeliveryState.REJECTED:
            state = "rejected"
            text = f"it was refused: {_REJECTED.get(delivery.reason, delivery.message)}"
            found = [text_of(finding_of(note)) for note in delivery.signature_notes]
            text += "".join(f"; {each}" for each in found)
        case DeliveryState.FAILED:
            state = "failed"
            text = f"it could not be dispatched: {delivery.message or delivery.reason}"
            if delivery.run_id is not None:
                text += "; sent again by its sender, it is taken up again"
        case _:
            assert_never(delivery.state)
    if delivery.attempt_count > 1:
        text += (
            f"; its sender sent it {delivery.attempt_count} times, "
            f"last at {iso(delivery.last_received_at)}"
        )
    if delivery.retries:
        text += f"; its sender counts {delivery.retries} tries"
    if delivery.content_copy_of is not None:
        text += (
            "; the same signed content came before under another id, as delivery "
            f"{delivery.content_copy_of}: a captured request, perhaps"
        )
    if delivery.replayed_from is not None:
        text += f"; it is a replay of delivery {delivery.replayed_from}"
    return Finding(
        time=delivery.finished_at or delivery.received_at,
        subject="delivery",
        subject_id=str(delivery.id),
        state=state,
        reason=delivery.reason,
        text=f"{came}, answered {delivery.response_status}; {text}",
        rows=(("webhook.deliveries", str(delivery.id)),),
        command=_command(delivery),
        related=tuple(
            str(each)
            for each in (delivery.run_id, delivery.endpoint_id, delivery.replayed_from)
            if each is not None
        ),
    )


def _command(delivery: Delivery) -> str:
    """Name what would change the outcome."""
    match delivery.state:
        case DeliveryState.REJECTED if delivery.reason in _REJECTED:
            return f"reveille triggers secrets list {delivery.endpoint_id}"
        case DeliveryState.HELD:
            return f"reveille deliveries release {delivery.endpoint_id}"
        case DeliveryState.IGNORED if delivery.reason == "autopilot_paused":
            return f"reveille deliveries replay {delivery.id}"
        case DeliveryState.FAILED:
            return f"reveille deliveries replay {delivery.id}"
        case _:
            return ""


def _waiting(delivery: Delivery, now: datetime) -> tuple[str, str]:
    # One that is judged once more has the run of the time before.
    admitted = delivery.judgement is not None or delivery.run_id is not None
    judged = "admitted" if admitted else "stored, but not judged yet"
    tries = f" after {delivery.dispatch_attempts} attempts" if delivery.dispatch_attempts else ""
    trouble = f" ({delivery.message})" if delivery.message else ""
    if delivery.lease_expires_at is not None:
        if delivery.lease_expires_at < now:
            return (
                "waiting_for_lease",
                f"it is {judged}; its worker's lease has run out, another one will take over",
            )
        return "dispatching", f"it is {judged}, and a worker is dispatching it"
    wait = (delivery.available_at - now).total_seconds()
    if wait > 0:
        return (
            "waiting_for_retry" if tries or trouble else "queued",
            f"it is {judged}{tries}{trouble}; the next attempt is in {span_of(wait)}",
        )
    if delivery.lane_key is not None:
        return (
            "waiting_for_lane",
            f"it is {judged} and follows what came before it in its lane ({delivery.lane_key})",
        )
    if -wait < _MOMENTS:
        return "queued", f"it is {judged}, and a worker takes it up within moments"
    late = span_of(-wait)
    return "due_late", f"it is {judged} and has been due for {late}: is a gateway's worker running?"
