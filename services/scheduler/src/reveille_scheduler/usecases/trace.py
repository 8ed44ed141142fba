"""The spans of an occurrence: its root, emitted once it has its outcome, and one per attempt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from opentelemetry.trace import Span, SpanKind

from reveille_runtime import semconv
from reveille_runtime.carrier import SpanSeed, emit_span, extract
from reveille_runtime.telemetry import Telemetry
from reveille_scheduler.domain.occurrence import Claim


class Tracing:
    """Makes the scheduler's spans."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer
        self._lateness = telemetry.meter.create_histogram(
            semconv.METRIC_LATENESS, unit="s", description="From the planned time to the claim."
        )
        self._executions = telemetry.meter.create_counter(
            semconv.METRIC_EXECUTIONS, description="Attempts by outcome."
        )
        self._steals = telemetry.meter.create_counter(
            semconv.METRIC_LEASE_STEALS, description="Attempts taken over from vanished executors."
        )

    def taken_over(self, count: int) -> None:
        """Count attempts whose executor vanished."""
        self._steals.add(count)

    def attempt(self, claim: Claim) -> Span:
        """Start the span of an attempt, under the root that the row holds."""
        late = (claim.started_at - claim.plan_time).total_seconds()
        self._lateness.record(late, {semconv.JOB_NAME: claim.job_name})
        return self._tracer.start_span(
            semconv.process_span(claim.job_name),
            context=extract(claim.carrier),
            kind=SpanKind.CONSUMER,
            attributes={
                semconv.JOB_NAME: claim.job_name,
                semconv.EXECUTION_ID: str(claim.id),
                semconv.PLAN_TIME: claim.plan_time.isoformat(),
                "reveille.attempt": claim.attempt,
            },
        )

    def settled(
        self,
        carrier: Mapping[str, str],
        job_name: str,
        plan_time: datetime,
        start: datetime,
        end: datetime,
        *,
        outcome: str,
        reason: str,
    ) -> None:
        """Emit the root span of an occurrence that has its outcome."""
        self._executions.add(1, {semconv.JOB_NAME: job_name, semconv.RUN_OUTCOME: outcome})
        seed = SpanSeed.from_carrier(carrier)
        if seed is None:
            return
        emit_span(
            self._tracer,
            seed,
            f"schedule {job_name}",
            start=start,
            end=end,
            attributes={
                semconv.JOB_NAME: job_name,
                semconv.PLAN_TIME: plan_time.isoformat(),
                semconv.RUN_OUTCOME: outcome,
                semconv.RUN_REASON: reason,
            },
            error=reason if outcome == "failed" else None,
        )
