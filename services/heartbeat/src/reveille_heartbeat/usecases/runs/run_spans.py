"""The spans `run` and `invoke_agent`, emitted under stored ids by whoever ends an attempt.

Their times come from the row, so a killed executor leaves no hole in the trace.
"""

from __future__ import annotations

from opentelemetry.trace import SpanKind

from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.values import Agent, Run
from reveille_runtime import semconv
from reveille_runtime.carrier import SpanSeed, emit_span
from reveille_runtime.telemetry import Telemetry


class RunSpans:
    """Emits the spans of ended runs and counts their time."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._duration = telemetry.meter.create_histogram(
            semconv.METRIC_RUN_DURATION, unit="s", description="From claim to terminal state"
        )
        self._ends = telemetry.meter.create_counter(
            semconv.METRIC_RUN_ENDS,
            description="Attempts that ended: how, why, and what they were repeats for",
        )

    @property
    def enabled(self) -> bool:
        """Whether anybody listens."""
        return self._telemetry.enabled

    def ended(self, run: Run, agent: Agent | None) -> None:
        """Tell of an attempt that has just got its terminal state; call it after the commit."""
        if not self._telemetry.enabled or run.finished_at is None:
            return
        outcome = run.state.value
        labels = {semconv.RUN_OUTCOME: outcome, semconv.RUN_REASON: run.reason}
        self._ends.add(1, labels | {semconv.RUN_RETRY_REASON: run.retry_reason})
        if run.started_at is not None:
            seconds = (run.finished_at - run.started_at).total_seconds()
            self._duration.record(seconds, {semconv.RUN_OUTCOME: outcome})
        error = None
        if run.state in (RunState.FAILED, RunState.TIMED_OUT):
            error = run.reason or outcome
        own = SpanSeed.from_carrier(run.trace_carrier)
        if own is not None:
            attributes: dict[str, str | int] = {
                semconv.WORKSPACE_ID: str(run.workspace_id),
                semconv.AGENT_RUN_ID: str(run.run_id),
                semconv.AGENT_RUN_ATTEMPT: run.attempt,
                semconv.WAKEUP_ID: str(run.wakeup_id),
                semconv.RUN_OUTCOME: outcome,
            }
            if run.issue_id is not None:
                attributes[semconv.ISSUE_ID] = str(run.issue_id)
            if run.reason:
                attributes[semconv.RUN_REASON] = run.reason
            emit_span(
                self._telemetry.tracer,
                own,
                semconv.SPAN_RUN,
                start=run.created_at,
                end=run.finished_at,
                attributes=attributes,
                error=error,
                events=[("claimed", run.started_at)] if run.started_at is not None else [],
            )
        invoked = SpanSeed.from_carrier(run.agent_carrier)
        if invoked is not None and run.started_at is not None and agent is not None:
            emit_span(
                self._telemetry.tracer,
                invoked,
                semconv.invoke_agent_span(agent.name),
                start=run.started_at,
                end=run.finished_at,
                kind=SpanKind.CLIENT,
                attributes={
                    semconv.GEN_AI_OPERATION: semconv.GEN_AI_OPERATION_INVOKE,
                    semconv.GEN_AI_PROVIDER: agent.adapter,
                    semconv.GEN_AI_AGENT_ID: str(agent.agent_id),
                    semconv.GEN_AI_AGENT_NAME: agent.name,
                    semconv.AGENT_RUN_ID: str(run.run_id),
                },
                error=error,
            )
