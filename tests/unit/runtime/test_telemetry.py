"""Telemetry from the environment, and the OTLP lines it writes."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from reveille_runtime import carrier
from reveille_runtime.otlp_file import OtlpFileSpanExporter, traces_file
from reveille_runtime.telemetry import EXPORT_DELAY_MS, Telemetry
from reveille_testkit.rpc import SpanLog


def test_without_an_endpoint_nothing_is_recorded() -> None:
    telemetry = Telemetry.from_env("autopilot", environ={})

    span = telemetry.tracer.start_span("x")

    assert not telemetry.enabled
    assert not span.is_recording()
    telemetry.flush()
    telemetry.shutdown()


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        },
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
def test_what_turns_export_off(environ: dict[str, str]) -> None:
    assert not Telemetry.from_env("autopilot", environ=environ).enabled


def test_a_parent_passes_through_where_nothing_is_recorded() -> None:
    telemetry = Telemetry.off()
    parent = carrier.SpanSeed.root().carrier()

    span = telemetry.tracer.start_span("x", context=carrier.extract(parent))

    assert f"{span.get_span_context().span_id:016x}" in parent["traceparent"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_spans_reach_the_file_as_otlp_json(tmp_path: Path) -> None:
    telemetry = Telemetry.from_env("autopilot", otlp_dir=tmp_path / "otlp", environ={})
    link = carrier.link(carrier.SpanSeed.root().carrier())
    assert link is not None

    with telemetry.tracer.start_as_current_span("outer"):
        inner = telemetry.tracer.start_span("inner", links=[link])
        inner.end()
    telemetry.flush()

    path = traces_file(tmp_path / "otlp", "autopilot", os.getpid())
    (resource,) = lines_of(path)[0]["resourceSpans"]
    spans = {span["name"]: span for span in resource["scopeSpans"][0]["spans"]}
    context = inner.get_span_context()
    assert spans["inner"]["traceId"] == f"{context.trace_id:032x}"
    assert spans["inner"]["spanId"] == f"{context.span_id:016x}"
    assert spans["inner"]["parentSpanId"] == spans["outer"]["spanId"]
    assert spans["inner"]["kind"] == 1
    assert spans["inner"]["links"][0]["traceId"] == f"{link.context.trace_id:032x}"
    names = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
    assert names["service.name"] == {"stringValue": "autopilot"}
    telemetry.shutdown()


def test_each_export_is_one_line_and_holds_all_of_the_request(tmp_path: Path) -> None:
    log = SpanLog()
    telemetry = Telemetry.of("autopilot", [log])
    telemetry.tracer.start_span("a", attributes={"n": 1, "f": 0.5, "s": ["x"]}).end()
    path = tmp_path / "t.jsonl"
    exporter = OtlpFileSpanExporter(path)

    assert exporter.export(log.ended) is SpanExportResult.SUCCESS
    assert exporter.export(log.ended) is SpanExportResult.SUCCESS
    exporter.shutdown()
    exporter.shutdown()

    first, second = lines_of(path)
    assert first == second
    for resource in first["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                # Back to protobuf's own JSON, where ids are base64.
                for name in ("traceId", "spanId"):
                    span[name] = _base64(bytes.fromhex(span[name]))
    assert ParseDict(first, ExportTraceServiceRequest()) == encode_spans(log.ended)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def test_a_killed_process_loses_only_what_had_just_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    export = OtlpFileSpanExporter.export

    def noted(self: OtlpFileSpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = export(self, spans)
        written.set()
        return result

    monkeypatch.setattr(OtlpFileSpanExporter, "export", noted)
    telemetry = Telemetry.from_env("autopilot", otlp_dir=tmp_path, environ={})

    telemetry.tracer.start_span("a").end()

    # Nobody flushes: the file is what is left after a kill -9.
    assert written.wait(timeout=10)
    assert '"a"' in traces_file(tmp_path, "autopilot", os.getpid()).read_text()
    assert EXPORT_DELAY_MS <= 1000
    telemetry.shutdown()


def test_a_full_disk_is_a_failed_export_and_no_crash(tmp_path: Path) -> None:
    log = SpanLog()
    Telemetry.of("autopilot", [log]).tracer.start_span("a").end()
    (tmp_path / "file").write_text("")

    assert (
        OtlpFileSpanExporter(tmp_path / "file" / "t.jsonl").export(log.ended)
        is SpanExportResult.FAILURE
    )


def test_a_collector_that_does_not_answer_holds_up_no_end() -> None:
    """The SDK itself would wait half a minute, which is longer than who stops a service does."""
    asked, answered = threading.Event(), threading.Event()

    class Silent(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            asked.set()
            answered.wait(60)
            return SpanExportResult.SUCCESS

    telemetry = Telemetry.of("autopilot", [BatchSpanProcessor(Silent(), schedule_delay_millis=1)])
    telemetry.tracer.start_span("x").end()
    assert asked.wait(10)
    began = time.monotonic()

    assert telemetry.shutdown(timeout=0.01) is False

    assert time.monotonic() - began < 10
    answered.set()


def test_a_root_seed_follows_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    telemetry = Telemetry.of("autopilot", [SpanLog()])

    assert not telemetry.seed().sampled
    assert telemetry.seed(carrier.SpanSeed.root().carrier()).sampled
