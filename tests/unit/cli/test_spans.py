"""Spans from files: what the processes' own exporter writes, merged and put into a tree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from reveille_cli.spans import read_trace
from reveille_runtime.carrier import SpanSeed, StoredIdGenerator, emit_span, extract, link
from reveille_runtime.otlp_file import OtlpFileSpanExporter, traces_file

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


def tracer(folder: Path, service: str) -> trace.Tracer:
    provider = TracerProvider(
        resource=Resource({"service.name": service}), id_generator=StoredIdGenerator()
    )
    provider.add_span_processor(
        SimpleSpanProcessor(OtlpFileSpanExporter(traces_file(folder, service, 1)))
    )
    return provider.get_tracer("test")


def test_one_trace_of_two_processes(tmp_path: Path) -> None:
    gateway, heartbeat = tracer(tmp_path, "gateway"), tracer(tmp_path, "heartbeat")
    root = SpanSeed.root()
    run = root.child()
    second = timedelta(seconds=1)
    emit_span(gateway, root, "hook", start=START, end=START + second)
    for _ in range(2):
        emit_span(heartbeat, run, "run", start=START, end=START + 3 * second, error="exit 1")
    emit_span(
        heartbeat,
        run.child(),
        "invoke",
        start=START + second,
        end=START + 2 * second,
        attributes={"n": 7, "names": ["a", "b"], "ok": True},
        events=[("started", START + second)],
    )
    emit_span(heartbeat, SpanSeed.root(), "elsewhere", start=START, end=START)

    found = read_trace(tmp_path, f"{root.trace_id:032x}")

    assert found is not None
    assert [(span.name, span.service) for span in found.spans] == [
        ("hook", "gateway"),
        ("run", "heartbeat"),
        ("invoke", "heartbeat"),
    ]
    hook, settled, invoke = found.spans
    assert (settled.error, settled.message) == (True, "exit 1")
    assert settled.parent_id == hook.span_id
    assert invoke.attributes == {"n": 7, "names": ["a", "b"], "ok": True}
    assert [event.name for event in invoke.events] == ["started"]
    assert found.end - found.start == 3_000_000_000
    assert found.lost == 0


def test_a_parent_nobody_wrote(tmp_path: Path) -> None:
    own = tracer(tmp_path, "heartbeat")
    root = SpanSeed.root()
    lost = root.child()
    late, early = lost.child(), lost.child()
    emit_span(own, root, "root", start=START, end=START)
    emit_span(own, late, "late", start=START + timedelta(seconds=2), end=START)
    emit_span(own, early, "early", start=START + timedelta(seconds=1), end=START)

    found = read_trace(tmp_path, f"{root.trace_id:032x}")

    assert found is not None
    assert [node.span.name if node.span else None for node in found.nodes()] == [
        "root",
        None,
        "early",
        "late",
    ]
    assert found.roots[1].span_id == f"{lost.span_id:016x}"


def test_links_to_and_from(tmp_path: Path) -> None:
    own = tracer(tmp_path, "autopilot")
    root, batch = SpanSeed.root(), SpanSeed.root()
    to_root = link(root.carrier(), {"reveille.link.kind": "item"})
    assert to_root is not None
    emit_span(own, root, "root", start=START, end=START)
    emit_span(own, batch, "batch", start=START, end=START, links=[to_root])

    found = read_trace(tmp_path, f"{root.trace_id:032x}")

    assert found is not None
    assert [span.name for span in found.linked_from] == ["batch"]
    assert found.linked_from[0].links[0].attributes == {"reveille.link.kind": "item"}


def test_a_line_that_is_still_being_written(tmp_path: Path) -> None:
    own = tracer(tmp_path, "scheduler")
    root = SpanSeed.root()
    with own.start_as_current_span("plan", context=extract(root.carrier())):
        pass
    file = traces_file(tmp_path, "scheduler", 1)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])

    found = read_trace(tmp_path, f"{root.trace_id:032x}")

    assert found is not None
    assert [span.name for span in found.spans] == ["plan"]
    assert found.lost == 1


def test_nothing_there(tmp_path: Path) -> None:
    assert read_trace(tmp_path / "nowhere", "0" * 32) is None
