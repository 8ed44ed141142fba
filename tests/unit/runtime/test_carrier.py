"""Trace context in rows: ids that outlive the process that made them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from reveille_runtime import carrier
from reveille_runtime.carrier import SpanSeed, emit_span
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import SpanLog

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def spans() -> SpanLog:
    return SpanLog()


@pytest.fixture
def telemetry(spans: SpanLog) -> Telemetry:
    return Telemetry.of("test", [spans])


def test_a_seed_comes_back_from_its_carrier() -> None:
    for seed in (SpanSeed.root(), SpanSeed.root(sampled=False), SpanSeed.root().child()):
        assert SpanSeed.from_carrier(json.loads(json.dumps(seed.carrier()))) == seed


def test_a_carrier_fits_its_column() -> None:
    stored = json.dumps(SpanSeed.root().child().carrier())

    assert len(stored.encode()) <= carrier.MAX_CARRIER_BYTES


def test_children_can_be_emitted_before_their_parent(spans: SpanLog, telemetry: Telemetry) -> None:
    root = telemetry.seed()
    run = SpanSeed.under(root.carrier())
    stored_root, stored_run = root.carrier(), run.carrier()

    with telemetry.tracer.start_as_current_span("work", context=carrier.extract(stored_run)):
        pass
    # What another process does, after the first was killed.
    for name, stored in (("run", stored_run), ("root", stored_root)):
        seed = SpanSeed.from_carrier(stored)
        assert seed is not None
        emit_span(
            telemetry.tracer, seed, name, start=START, end=START + timedelta(microseconds=1500)
        )

    by_name = {span.name: span for span in spans.ended}
    contexts = {name: span.context for name, span in by_name.items()}
    assert {context.trace_id for context in contexts.values() if context} == {root.trace_id}
    assert contexts["root"] is not None
    assert contexts["run"] is not None
    assert contexts["root"].span_id == root.span_id
    assert by_name["root"].parent is None
    assert by_name["run"].parent is not None
    assert by_name["run"].parent.span_id == root.span_id
    assert by_name["work"].parent is not None
    assert by_name["work"].parent.span_id == run.span_id


def test_an_emitted_span_has_the_times_of_its_row(spans: SpanLog, telemetry: Telemetry) -> None:
    end = START + timedelta(seconds=2, microseconds=7)

    emit_span(
        telemetry.tracer,
        SpanSeed.root(),
        "run",
        start=START,
        end=end,
        kind=SpanKind.CONSUMER,
        attributes={"reveille.run.outcome": "failed"},
        error="dispatch_incomplete",
        events=[("claim", START)],
        links=carrier.links([{"traceparent": PARENT}, {}, None]),
    )

    (span,) = spans.ended
    assert span.start_time == 1772366400123456000
    assert span.end_time == 1772366402123463000
    assert span.kind is SpanKind.CONSUMER
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "dispatch_incomplete",
    )
    assert [event.name for event in span.events] == ["claim"]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]


def test_a_row_whose_clock_went_back_still_makes_a_span(
    spans: SpanLog, telemetry: Telemetry
) -> None:
    emit_span(
        telemetry.tracer, SpanSeed.root(), "run", start=START, end=START - timedelta(seconds=1)
    )

    assert spans.ended[0].start_time == spans.ended[0].end_time


def test_ordinary_spans_keep_random_ids(spans: SpanLog, telemetry: Telemetry) -> None:
    seed = SpanSeed.root()
    emit_span(telemetry.tracer, seed, "run", start=START, end=START)

    telemetry.tracer.start_span("other").end()

    other = spans.named("other")[0].context
    assert other is not None
    assert other.trace_id != seed.trace_id


def test_an_unsampled_trace_stays_unsampled(spans: SpanLog, telemetry: Telemetry) -> None:
    child = SpanSeed.under(SpanSeed.root(sampled=False).carrier())

    emit_span(telemetry.tracer, child, "run", start=START, end=START)

    assert not child.sampled
    assert spans.ended == []


def test_inject_and_extract_are_inverse(telemetry: Telemetry) -> None:
    assert carrier.inject() == {}

    with telemetry.tracer.start_as_current_span("outer") as outer:
        stored = carrier.inject()
        assert carrier.new_span_ids().parent_span_id == outer.get_span_context().span_id
    context = trace.get_current_span(carrier.extract(stored)).get_span_context()

    assert context.span_id == outer.get_span_context().span_id
    assert context.is_remote


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_a_bad_traceparent_is_no_parent(header: str) -> None:
    assert carrier.checked({"traceparent": header}) == {}
    assert carrier.link({"traceparent": header}) is None
    assert SpanSeed.under({"traceparent": header}).parent_span_id is None


def test_only_our_own_fields_are_kept_of_a_foreign_carrier() -> None:
    foreign: dict[str, object] = {
        "traceparent": PARENT,
        "tracestate": "vendor=1",
        "baggage": "user=secret",
        "parent_span_id": "../../x",
        "n": 1,
    }

    assert carrier.checked(foreign) == {"traceparent": PARENT}
    assert carrier.traceparent({"traceparent": PARENT}) == PARENT
