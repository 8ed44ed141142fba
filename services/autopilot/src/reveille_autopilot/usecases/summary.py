"""The span and the figures of a whole run, emitted by whoever gave it its outcome."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.trace import Span, SpanKind

from reveille_autopilot.domain.gate import Judgement
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.states import RunState
from reveille_runtime import semconv
from reveille_runtime.carrier import Carrier, SpanSeed, emit_span, extract
from reveille_runtime.telemetry import Telemetry

SPAN_RUN = "autopilot.run"
SPAN_DISPATCH = "dispatch autopilot.run"


class RunTracing:
    """Makes the spans of runs."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._duration = telemetry.meter.create_histogram(
            semconv.METRIC_RUN_DURATION, unit="s", description="From admission to the outcome."
        )

        self._over_quota = telemetry.meter.create_counter(
            semconv.METRIC_QUOTA_OVER, unit="{run}", description="Runs beyond an observed quota."
        )

    def admitted(self, judgements: Iterable[Judgement]) -> None:
        """Count what a quota that is only observed would have refused."""
        if number := sum(judgement.over_quota for judgement in judgements):
            self._over_quota.add(number)

    def seed(self, parent: Carrier) -> dict[str, str]:
        """Make the identity of a run's span, for its row."""
        return self._telemetry.seed(parent).carrier()

    def dispatching(self, run: Run, carrier: Carrier) -> Span:
        """Start the span of one attempt to dispatch, under whoever caused it."""
        return self._telemetry.tracer.start_span(
            SPAN_DISPATCH,
            context=extract(carrier or run.trace_carrier),
            kind=SpanKind.INTERNAL,
            attributes={
                semconv.RUN_ID: str(run.id),
                semconv.OCCURRENCE_KEY: run.occurrence_key,
                semconv.AUTOPILOT_ID: str(run.autopilot_id),
            },
        )

    def ended(self, runs: Iterable[Run]) -> None:
        """Emit the spans of runs that have just got their outcome."""
        for run in runs:
            self._ended(run)

    def _ended(self, run: Run) -> None:
        end = run.finished_at or run.created_at
        attributes = {
            semconv.TRIGGER_SOURCE: run.source.value,
            semconv.RUN_OUTCOME: run.state.value,
            semconv.RUN_REASON: run.reason or "",
        }
        self._duration.record((end - run.created_at).total_seconds(), attributes)
        seed = SpanSeed.from_carrier(run.trace_carrier)
        if seed is None:
            return
        ids = {
            semconv.RUN_ID: run.id,
            semconv.WORKSPACE_ID: run.workspace_id,
            semconv.AUTOPILOT_ID: run.autopilot_id,
            semconv.TRIGGER_ID: run.trigger_id,
            semconv.DELIVERY_ID: run.delivery_id,
            semconv.WAKEUP_ID: run.wakeup_id,
            semconv.ISSUE_ID: run.issue_id,
        }
        known = {name: str(value) for name, value in ids.items() if value is not None}
        emit_span(
            self._telemetry.tracer,
            seed,
            SPAN_RUN,
            start=run.created_at,
            end=end,
            attributes={**attributes, **known, semconv.OCCURRENCE_KEY: run.occurrence_key},
            error=(run.message or run.reason) if run.state is RunState.FAILED else None,
        )
