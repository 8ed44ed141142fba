"""A real OTLP receiver: the spans that processes truly sent, and questions about their trees.

    async with OtlpReceiver() as receiver:
        ...  # start processes with OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint
        trace = await receiver.wait_for(trace_id, lambda trace: trace.named("run"), timeout=10)

Equal span ids of one trace are one span: a settle that is repeated emits its span again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.trace import SpanKind

_KINDS: Mapping[int, SpanKind] = {
    trace_pb2.Span.SPAN_KIND_INTERNAL: SpanKind.INTERNAL,
    trace_pb2.Span.SPAN_KIND_SERVER: SpanKind.SERVER,
    trace_pb2.Span.SPAN_KIND_CLIENT: SpanKind.CLIENT,
    trace_pb2.Span.SPAN_KIND_PRODUCER: SpanKind.PRODUCER,
    trace_pb2.Span.SPAN_KIND_CONSUMER: SpanKind.CONSUMER,
}


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came over the wire; ids are lower-case hexadecimal."""

    service: str
    name: str
    kind: SpanKind
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()
    """The trace and span ids it is linked to."""
    events: tuple[str, ...] = ()
    failed: bool = False

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True, slots=True)
class ReceivedTrace:
    """All spans of one trace that have come so far."""

    trace_id: str
    spans: tuple[ReceivedSpan, ...]

    @property
    def services(self) -> frozenset[str]:
        """The services that took part."""
        return frozenset(span.service for span in self.spans)

    @property
    def roots(self) -> tuple[ReceivedSpan, ...]:
        """Every span without a parent; a healthy trace has one."""
        return tuple(span for span in self.spans if not span.parent_id)

    @property
    def orphans(self) -> tuple[ReceivedSpan, ...]:
        """Every span whose parent has not come."""
        known = {span.span_id for span in self.spans}
        return tuple(span for span in self.spans if span.parent_id and span.parent_id not in known)

    def named(self, prefix: str, service: str = "") -> tuple[ReceivedSpan, ...]:
        """Return the spans whose name begins so, of one service or of all."""
        return tuple(
            span
            for span in self.spans
            if span.name.startswith(prefix) and service in {"", span.service}
        )

    def span(self, span_id: str) -> ReceivedSpan | None:
        """Return one span by its id."""
        return next((span for span in self.spans if span.span_id == span_id), None)

    def children(self, span: ReceivedSpan) -> tuple[ReceivedSpan, ...]:
        """Return what stands directly under a span, earliest first."""
        found = (each for each in self.spans if each.parent_id == span.span_id)
        return tuple(sorted(found, key=lambda each: each.start_ns))

    def path(self, span: ReceivedSpan) -> tuple[ReceivedSpan, ...]:
        """Return the way from the topmost span that has come down to this one."""
        way = [span]
        while (parent := self.span(way[0].parent_id)) is not None and parent not in way:
            way.insert(0, parent)
        return tuple(way)

    @property
    def connected(self) -> bool:
        """Whether it is one tree: a single root, and no parent is missing."""
        return len(self.roots) == 1 and not self.orphans

    def render(self) -> str:
        """Draw the tree, for the message of a failed assertion."""
        lines = [f"trace {self.trace_id}, {len(self.spans)} spans"]
        for top in (*self.roots, *self.orphans):
            if top.parent_id:
                lines.append(f"  (missing parent {top.parent_id})")
            lines += self._draw(top, 1)
        return "\n".join(lines)

    def _draw(self, span: ReceivedSpan, depth: int) -> Iterator[str]:
        mark = " !" if span.failed else ""
        yield f"{'  ' * depth}{span.name} [{span.service}] {span.duration_ms:.1f} ms{mark}"
        for child in self.children(span):
            yield from self._draw(child, depth + 1)


class OtlpReceiver:
    """A gRPC server on a free loopback port that keeps what it is sent."""

    def __init__(self) -> None:
        self._server: grpc.aio.Server | None = None
        self._port = 0
        self._spans: dict[str, dict[str, ReceivedSpan]] = defaultdict(dict)
        self._raw: list[bytes] = []
        self._metrics: dict[str, set[str]] = defaultdict(set)
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        server = grpc.aio.server()
        package = "opentelemetry.proto.collector"
        server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    f"{package}.trace.v1.TraceService",
                    {
                        "Export": grpc.unary_unary_rpc_method_handler(
                            self._take_traces,
                            trace_pb.ExportTraceServiceRequest.FromString,
                            trace_pb.ExportTraceServiceResponse.SerializeToString,
                        )
                    },
                ),
                grpc.method_handlers_generic_handler(
                    f"{package}.metrics.v1.MetricsService",
                    {
                        "Export": grpc.unary_unary_rpc_method_handler(
                            self._take_metrics,
                            metrics_pb.ExportMetricsServiceRequest.FromString,
                            metrics_pb.ExportMetricsServiceResponse.SerializeToString,
                        )
                    },
                ),
            ]
        )
        self._port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._server = server
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            await self._server.stop(None)

    @property
    def endpoint(self) -> str:
        """The value for OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._port}"

    def trace(self, trace_id: str) -> ReceivedTrace:
        """Return what has come of a trace."""
        return ReceivedTrace(trace_id, tuple(self._spans.get(trace_id, {}).values()))

    def traces(self) -> list[ReceivedTrace]:
        """Return every trace of which anything has come."""
        return [self.trace(trace_id) for trace_id in self._spans]

    def metrics(self, service: str) -> frozenset[str]:
        """Name the metrics that a service has sent."""
        return frozenset(self._metrics.get(service, ()))

    def received_bytes(self) -> Sequence[bytes]:
        """Return every request as it came, to look for what must not be in it."""
        return tuple(self._raw)

    async def wait_for(
        self, trace_id: str, wanted: Callable[[ReceivedTrace], object], timeout: float = 10.0
    ) -> ReceivedTrace:
        """Wait until what has come of a trace is as wanted; AssertionError shows what did come."""
        async with self._arrived:
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait_for(lambda: wanted(self.trace(trace_id)))
            except TimeoutError:
                tree = self.trace(trace_id).render()
                raise AssertionError(f"not as wanted after {timeout:g} s:\n{tree}") from None
        return self.trace(trace_id)

    async def _take_traces(
        self, request: trace_pb.ExportTraceServiceRequest, _context: object
    ) -> trace_pb.ExportTraceServiceResponse:
        async with self._arrived:
            self._raw.append(request.SerializeToString())
            for resource in request.resource_spans:
                service = _service(resource.resource.attributes)
                for scope in resource.scope_spans:
                    for sent in scope.spans:
                        span = _read(service, sent)
                        self._spans[span.trace_id][span.span_id] = span
            self._arrived.notify_all()
        return trace_pb.ExportTraceServiceResponse()

    async def _take_metrics(
        self, request: metrics_pb.ExportMetricsServiceRequest, _context: object
    ) -> metrics_pb.ExportMetricsServiceResponse:
        async with self._arrived:
            self._raw.append(request.SerializeToString())
            for resource in request.resource_metrics:
                names = self._metrics[_service(resource.resource.attributes)]
                for scope in resource.scope_metrics:
                    names.update(each.name for each in scope.metrics)
            self._arrived.notify_all()
        return metrics_pb.ExportMetricsServiceResponse()


def _service(attributes: Sequence[common_pb2.KeyValue]) -> str:
    return str(_values(attributes).get("service.name", ""))


def _read(service: str, sent: trace_pb2.Span) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=sent.name,
        kind=_KINDS.get(sent.kind, SpanKind.INTERNAL),
        trace_id=sent.trace_id.hex(),
        span_id=sent.span_id.hex(),
        parent_id=sent.parent_span_id.hex(),
        start_ns=sent.start_time_unix_nano,
        end_ns=sent.end_time_unix_nano,
        attributes=_values(sent.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in sent.links),
        events=tuple(event.name for event in sent.events),
        failed=sent.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
    )


def _values(attributes: Sequence[common_pb2.KeyValue]) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    return None if kind is None else getattr(value, kind)
