"""The gateway's spans and counts: one span for a request, one for its processing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, use_span

from reveille_runtime import semconv
from reveille_runtime.carrier import SpanSeed, extract, link, start_seeded
from reveille_runtime.telemetry import Telemetry
from reveille_webhook.domain.delivery import Answer, Claim, Delivery
from reveille_webhook.domain.endpoint import OpenEndpoint

QUEUE = "webhook.deliveries"
_NOTHING = nullcontext()
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Tracing:
    """Makes spans; a token is in none of them."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._deliveries = telemetry.meter.create_counter(
            semconv.METRIC_DELIVERIES, description="Requests at hooks, by outcome."
        )
        self._held = telemetry.meter.create_counter(
            semconv.METRIC_HELD, description="Deliveries that the loop breaker took hold of."
        )
        self._durations = telemetry.meter.create_histogram(
            semconv.HTTP_SERVER_DURATION,
            unit="s",
            description="From the request's head to its answer.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    def held(self, number: int) -> None:
        """Count deliveries that the loop breaker took hold of."""
        self._held.add(number)

    def request(self, method: str, traceparent: str) -> tuple[Span, dict[str, str]]:
        """Start the root of a trace, and give what rows store of it.

        A trace that the sender claims to belong to is not ours to continue: it becomes a link.
        """
        seed: SpanSeed = self._telemetry.seed()
        if not self._telemetry.enabled:
            return INVALID_SPAN, seed.carrier()
        claimed = link({"traceparent": traceparent}, {semconv.LINK_KIND: "sender"})
        span = start_seeded(
            self._telemetry.tracer,
            seed,
            semconv.SPAN_WEBHOOK,
            kind=SpanKind.SERVER,
            links=[] if claimed is None else [claimed],
            attributes={
                semconv.HTTP_METHOD: method,
                semconv.HTTP_ROUTE: "/hooks/{token}",
                semconv.URL_SCHEME: "http",
            },
        )
        return span, seed.carrier()

    def within(self, span: Span) -> AbstractContextManager[object]:
        """Make a request's span the current one, and end it; where spans are off there is none."""
        return _NOTHING if span is INVALID_SPAN else use_span(span, end_on_exit=True)

    def replayed(self, original: Delivery) -> dict[str, str]:
        """Start the trace of a replay, and give what its row stores; the original's is a link."""
        seed = self._telemetry.seed()
        earlier = link(original.carrier, {semconv.LINK_KIND: "replayed"})
        start_seeded(
            self._telemetry.tracer,
            seed,
            "replay webhook.delivery",
            kind=SpanKind.INTERNAL,
            links=[] if earlier is None else [earlier],
            attributes={semconv.TRIGGER_ID: str(original.endpoint_id)},
        ).end()
        return seed.carrier()

    def answered(self, span: Span, status: int, outcome: str, seconds: float) -> None:
        """Note how a request ended."""
        span.set_attribute(semconv.HTTP_STATUS_CODE, status)
        self._durations.record(
            seconds, {semconv.HTTP_ROUTE: "/hooks/{token}", semconv.HTTP_STATUS_CODE: status}
        )
        self._deliveries.add(1, {semconv.DELIVERY_OUTCOME: outcome})

    def found(self, span: Span, endpoint: OpenEndpoint) -> None:
        """Note which hook a request is for."""
        if not span.is_recording():
            return
        span.set_attribute(semconv.TRIGGER_ID, str(endpoint.id))
        span.set_attribute(semconv.WORKSPACE_ID, str(endpoint.workspace_id))

    def stored(self, span: Span, answer: Answer) -> None:
        """Note what became of a request's delivery."""
        if not span.is_recording():
            return
        span.set_attribute(semconv.DELIVERY_OUTCOME, answer.outcome.value)
        if answer.delivery_id is not None:
            span.set_attribute(semconv.DELIVERY_ID, str(answer.delivery_id))
        if answer.run_id is not None:
            span.set_attribute(semconv.RUN_ID, str(answer.run_id))

    def processing(self, claim: Claim) -> Span:
        """Start the span of one attempt of the worker, under the request's."""
        return self._telemetry.tracer.start_span(
            semconv.process_span(QUEUE),
            context=extract(claim.facts.carrier),
            kind=SpanKind.CONSUMER,
            attributes={
                semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_PG,
                semconv.MESSAGING_DESTINATION: QUEUE,
                semconv.MESSAGING_MESSAGE_ID: str(claim.id),
                semconv.DELIVERY_ID: str(claim.id),
                semconv.TRIGGER_ID: str(claim.facts.endpoint_id),
                semconv.WORKSPACE_ID: str(claim.facts.workspace_id),
                "reveille.attempt": claim.attempt,
            },
        )


def carrier_under(span: Span, stored: Mapping[str, str]) -> dict[str, str]:
    """Give the carrier of a span, or the stored one when spans are off."""
    context = span.get_span_context()
    if not context.is_valid:
        return dict(stored)
    seed = SpanSeed(context.trace_id, context.span_id, None, bool(context.trace_flags.sampled))
    return seed.carrier()
