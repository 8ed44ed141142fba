"""Tracer and meter of one process, built from the standard OTEL_* variables.

Without an endpoint nothing is exported, nothing is warned about, and spans cost next to nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NoOpTracerProvider, Tracer

from reveille_runtime.carrier import Carrier, SpanSeed, StoredIdGenerator
from reveille_runtime.otlp_file import OtlpFileSpanExporter, traces_file

SCOPE = "reveille"
# How long a finished span may wait before it is written: what a kill -9 may cost.
EXPORT_DELAY_MS = 500
QUEUE_SIZE = 16_384


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a composition root hands to everything that is measured."""

    service: str
    tracer: Tracer
    meter: Meter
    enabled: bool
    _traces: TracerProvider | None = None
    _metrics: MeterProvider | None = None

    @classmethod
    def from_env(
        cls,
        service: str,
        *,
        otlp_dir: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Telemetry:
        """Build what OTEL_* asks for; with `otlp_dir`, also write spans to a file there."""
        env = os.environ if environ is None else environ
        processors: list[SpanProcessor] = []
        readers: list[MetricReader] = []
        if env.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
            if otlp_dir is not None:
                processors.append(
                    _batched(OtlpFileSpanExporter(traces_file(otlp_dir, service, os.getpid())), env)
                )
            if _exports(env, "TRACES"):
                # Imported only when used: the exporter brings a second gRPC channel with it.
                from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
                    OTLPSpanExporter,
                )

                processors.append(_batched(OTLPSpanExporter(), env))
            if _exports(env, "METRICS"):
                from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
                    OTLPMetricExporter,
                )

                readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        return cls.of(service, processors, readers)

    @classmethod
    def of(
        cls,
        service: str,
        processors: Sequence[SpanProcessor] = (),
        readers: Sequence[MetricReader] = (),
    ) -> Telemetry:
        """Build telemetry over given processors and readers; without any it is off."""
        traces, metrics = None, None
        resource = Resource.create({"service.name": service, "service.namespace": SCOPE})
        if processors:
            traces = TracerProvider(
                resource=resource, id_generator=StoredIdGenerator(), shutdown_on_exit=False
            )
            for processor in processors:
                traces.add_span_processor(processor)
        if readers:
            metrics = MeterProvider(
                resource=resource, metric_readers=readers, shutdown_on_exit=False
            )
        return cls(
            service=service,
            tracer=(traces or NoOpTracerProvider()).get_tracer(SCOPE),
            meter=(metrics or NoOpMeterProvider()).get_meter(SCOPE),
            enabled=traces is not None or metrics is not None,
            _traces=traces,
            _metrics=metrics,
        )

    @classmethod
    def off(cls, service: str = "reveille") -> Telemetry:
        """Build telemetry that records nothing."""
        return cls.of(service)

    def seed(self, parent: Carrier | None = None) -> SpanSeed:
        """Make the identity of a span that is emitted later: a child of `parent`, or a root.

        A root is sampled as the configured sampler decides; everything under it follows.
        """
        seed = SpanSeed.under(parent or {})
        if self._traces is None or seed.parent_span_id is not None:
            return seed
        decision = self._traces.sampler.should_sample(None, seed.trace_id, "run").decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        return SpanSeed(seed.trace_id, seed.span_id, None, sampled)

    def flush(self) -> None:
        """Write out what has ended so far."""
        if self._traces is not None:
            self._traces.force_flush()
        if self._metrics is not None:
            self._metrics.force_flush()

    def shutdown(self, timeout: float = 5.0) -> bool:
        """Write out everything and stop, the last thing a process does; False when time was short.

        The SDK's own shutdown waits half a minute for a collector that does not answer, for spans
        and for metrics: longer than whoever stops a service does.
        """
        ending = threading.Thread(target=self._shut_down, name="telemetry shutdown", daemon=True)
        ending.start()
        ending.join(timeout)
        return not ending.is_alive()

    def _shut_down(self) -> None:
        if self._traces is not None:
            self._traces.shutdown()
        if self._metrics is not None:
            self._metrics.shutdown()


def _batched(exporter: SpanExporter, env: Mapping[str, str]) -> BatchSpanProcessor:
    return BatchSpanProcessor(
        exporter,
        max_queue_size=None if "OTEL_BSP_MAX_QUEUE_SIZE" in env else QUEUE_SIZE,
        schedule_delay_millis=None if "OTEL_BSP_SCHEDULE_DELAY" in env else EXPORT_DELAY_MS,
    )


def _exports(env: Mapping[str, str], signal: str) -> bool:
    if env.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() == "none":
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(env.get(name, "").strip() for name in names)
