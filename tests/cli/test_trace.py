"""`reveille trace`: from any id to the tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import run_pb2
from reveille.heartbeat.v1 import wakeup_pb2
from reveille_cli.apis import AGENT_RUNS, AUTOPILOTS, DELIVERIES, SCHEDULER, WAKEUPS
from reveille_runtime.errors import InvalidArgument, NotFound, PermissionDenied, Unavailable

from .conftest import Answer, Desk

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "1bf7651916cd43dd8448eb211c80319c"
GONE = NotFound("NOT_FOUND")
START = 1_790_000_000_000_000_000
MS = 1_000_000


def span(
    span_id: str, parent: str = "", *, name: str, at: int = 0, took: int = 1, **more: Any
) -> Any:
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(START + at * MS),
        "endTimeUnixNano": str(START + (at + took) * MS),
        **more,
    }


def write(desk: Desk, service: str, *spans: Any, tail: str = "") -> None:
    folder = desk.data_dir / "otlp"
    folder.mkdir(parents=True, exist_ok=True)
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    line = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}
    with (folder / f"{service}-1-traces.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n" + tail)


@pytest.fixture
def written(desk: Desk) -> Desk:
    hook = span("a" * 16, name="POST /hooks/{token}", took=12, kind=2)
    failed = {"status": {"code": 2, "message": "exit 1"}}
    link = [{"traceId": OTHER, "spanId": "9" * 16}]
    batch = {**span("8" * 16, name="DispatchDeliveries", at=20), "traceId": OTHER}
    batch["links"] = [{"traceId": TRACE, "spanId": "a" * 16}]
    write(desk, "webhook-gateway", hook, hook)
    write(desk, "autopilot", span("b" * 16, "a" * 16, name="dispatch", at=20, took=3), batch)
    write(
        desk,
        "heartbeat",
        span("d" * 16, "c" * 16, name="invoke_agent triage", at=40, took=1500, **failed),
        span("e" * 16, "a" * 16, name="send heartbeat.wakeups", at=22, links=link),
        tail='{"resourceSpans": [{"traceId": "' + TRACE,
    )
    return desk


def test_the_tree(written: Desk) -> None:
    outcome = written.run("trace", TRACE)

    assert outcome.exit_code == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines == [
        f"trace {TRACE}: 4 spans, 1 lost in 3 services, 1540 ms, began 2026-09-21T14:13:20Z",
        "SPAN SERVICE START TIME STATUS LINKS",
        "POST /hooks/{token} webhook-gateway +0.0 ms 12.0 ms ok",
        "├─ dispatch autopilot +20.0 ms 3.0 ms ok",
        f"└─ send heartbeat.wakeups heartbeat +22.0 ms 1.0 ms ok link to trace {OTHER}",
        "lost span id cccccccccccccccc",
        "└─ invoke_agent triage heartbeat +40.0 ms 1500 ms error: exit 1",
        "",
        "LINKED FROM SERVICE START TIME STATUS TRACE",
        f"DispatchDeliveries autopilot +20.0 ms 1.0 ms ok {OTHER}",
    ]


def test_nested_objects(written: Desk) -> None:
    shown = written.run("trace", TRACE, "-o", "json").json

    hook, lost = shown["roots"]
    assert (shown["spans"], shown["lost"], shown["duration_ms"]) == (4, 1, 1540.0)
    assert shown["services"] == ["autopilot", "heartbeat", "webhook-gateway"]
    assert (hook["name"], hook["kind"], hook["parent_span_id"]) == (
        "POST /hooks/{token}",
        "server",
        None,
    )
    assert [child["name"] for child in hook["children"]] == ["dispatch", "send heartbeat.wakeups"]
    assert hook["children"][1]["links"] == [
        {"trace_id": OTHER, "span_id": "9" * 16, "attributes": {}}
    ]
    assert lost["lost"]
    assert lost["children"][0]["status"] == "error"
    assert lost["children"][0]["status_message"] == "exit 1"
    assert [each["name"] for each in shown["linked_from"]] == ["DispatchDeliveries"]


def test_the_trace_of_a_run(written: Desk) -> None:
    run = autopilot.GetRunResponse(run=run_pb2.AutopilotRun(trace_id=TRACE))

    outcome = written.run("trace", "r1", "-o", "json", answers=[Answer(AUTOPILOTS, "GetRun", run)])

    assert outcome.json["trace_id"] == TRACE


def test_every_service_is_asked_in_turn(written: Desk) -> None:
    wakeup = wakeup_pb2.GetWakeupResponse(wakeup=wakeup_pb2.WakeupRecord(trace_id=TRACE))
    answers = [
        Answer(AUTOPILOTS, "GetRun", GONE),
        Answer(DELIVERIES, "GetDelivery", Unavailable("DATABASE_UNAVAILABLE")),
        Answer(AGENT_RUNS, "GetRun", GONE),
        Answer(WAKEUPS, "GetWakeup", wakeup),
    ]

    outcome = written.run("trace", "w1", "-o", "json", answers=answers)

    assert outcome.json["trace_id"] == TRACE
    assert outcome.requests[3].wakeup_id == "w1"


@pytest.mark.parametrize(
    ("last", "exit_code", "reason"),
    [
        (GONE, 3, "not_found"),
        (PermissionDenied("CALLER_NOT_ALLOWED"), 3, "not_found"),
        (InvalidArgument.of("execution_id", "is no id"), 3, "not_found"),
        (Unavailable("DATABASE_UNAVAILABLE"), 6, "database_unavailable"),
    ],
)
def test_an_id_nobody_knows(desk: Desk, last: Any, exit_code: int, reason: str) -> None:
    answers = [
        Answer(AUTOPILOTS, "GetRun", GONE),
        Answer(DELIVERIES, "GetDelivery", GONE),
        Answer(AGENT_RUNS, "GetRun", GONE),
        Answer(WAKEUPS, "GetWakeup", GONE),
        Answer(SCHEDULER, "GetExecution", last),
    ]

    outcome = desk.run("trace", "x", "-o", "json", answers=answers)

    assert outcome.exit_code == exit_code
    assert outcome.json["error"]["reason"] == reason


def test_a_trace_without_spans(desk: Desk, tmp_path: Path) -> None:
    outcome = desk.run("trace", TRACE, "-o", "json")

    assert outcome.exit_code == 3
    assert outcome.json["error"]["reason"] == "trace_not_found"
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in outcome.json["error"]["hint"]
