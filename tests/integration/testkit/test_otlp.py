"""The OTLP receiver: what really travelled, and whether it makes a tree."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from opentelemetry.trace import SpanKind

from reveille_runtime.carrier import SpanSeed, emit_span, extract
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.otlp import OtlpReceiver

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


async def test_spans_come_with_their_ids_attributes_and_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        telemetry = Telemetry.from_env("front")
        root = SpanSeed.root()
        trace_id = f"{root.trace_id:032x}"
        with telemetry.tracer.start_as_current_span(
            "child", context=extract(root.carrier()), kind=SpanKind.CONSUMER
        ) as child:
            child.set_attributes({"text": "x", "number": 3, "list": ["a", "b"]})
        telemetry.meter.create_counter("things").add(1)
        await asyncio.to_thread(telemetry.flush)

        torn = await receiver.wait_for(trace_id, lambda trace: trace.named("child"))
        assert not torn.connected
        assert torn.orphans == torn.named("child")
        assert "missing parent" in torn.render()

        waiting = asyncio.ensure_future(receiver.wait_for(trace_id, lambda trace: trace.connected))
        for _ in range(2):  # a settle that was repeated
            emit_span(telemetry.tracer, root, "root", start=NOON, end=NOON, error="it broke")
        await asyncio.to_thread(telemetry.shutdown)
        whole = await waiting

        assert [span.name for span in whole.roots] == ["root"]
        assert len(whole.spans) == 2
        assert whole.services == {"front"}
        (received,) = whole.named("child", "front")
        assert received.kind is SpanKind.CONSUMER
        assert received.attributes == {"text": "x", "number": 3, "list": ("a", "b")}
        assert [span.name for span in whole.path(received)] == ["root", "child"]
        assert whole.children(whole.roots[0]) == (received,)
        assert whole.roots[0].failed
        assert "things" in receiver.metrics("front")
        assert any(b"child" in request for request in receiver.received_bytes())
        assert [trace.trace_id for trace in receiver.traces()] == [trace_id]


async def test_what_does_not_come_is_told_with_what_did() -> None:
    async with OtlpReceiver() as receiver:
        with pytest.raises(AssertionError, match="trace ab, 0 spans"):
            await receiver.wait_for("ab", lambda trace: trace.spans, timeout=0.01)
