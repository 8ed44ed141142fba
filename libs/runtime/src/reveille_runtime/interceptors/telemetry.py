"""A span and a duration for every RPC, on both sides, with the status it really ended with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode

from reveille_runtime import carrier, semconv
from reveille_runtime.interceptors.chain import Done, OutgoingCall, RpcCall
from reveille_runtime.telemetry import Telemetry

# What counts as the server's own failure; a NOT_FOUND is an answer.
SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
# Core's timer and our clock may disagree by this much about a deadline that has passed.
_DEADLINE_SLACK = 0.005
_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ServerTelemetry:
    """The outermost stage of a server."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer
        self._enabled = telemetry.enabled
        self._duration = telemetry.meter.create_histogram(
            semconv.RPC_SERVER_DURATION,
            unit="s",
            description="How long calls took to serve.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Open the server span under the caller's, and close it with the call's status."""
        parent = carrier.extract(call.metadata)
        span = self._tracer.start_span(
            call.method,
            context=parent,
            kind=SpanKind.SERVER,
            attributes={
                semconv.RPC_SYSTEM: semconv.RPC_SYSTEM_GRPC,
                semconv.RPC_METHOD: call.method,
            }
            if self._enabled
            else None,
        )
        # An RPC is a task of its own, so there is no need to detach; a stream that is dropped is
        # closed from another context, where detaching would fail.
        otel_context.attach(trace.set_span_in_context(span, Context()))
        started = time.perf_counter()
        raised: BaseException | None = None
        try:
            yield
        except BaseException as error:
            raised = error
            raise
        finally:
            if self._enabled:
                code = ended_with(call.context, raised)
                outcome = {semconv.RPC_STATUS_CODE: code.name}
                if code in SERVER_FAULTS:
                    outcome[semconv.ERROR_TYPE] = code.name
                    span.set_status(Status(StatusCode.ERROR))
                span.set_attributes(outcome)
                self._duration.record(
                    time.perf_counter() - started,
                    {
                        semconv.RPC_SYSTEM: semconv.RPC_SYSTEM_GRPC,
                        semconv.RPC_METHOD: call.method,
                        **outcome,
                    },
                )
                span.end()


def ended_with(context: Any, raised: BaseException | None) -> grpc.StatusCode:
    """Tell the status of a served call from how its handler ended."""
    if isinstance(raised, asyncio.CancelledError | GeneratorExit):
        remaining = context.time_remaining()
        if remaining is not None and remaining <= _DEADLINE_SLACK:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        return grpc.StatusCode.CANCELLED
    code = context.code()
    if isinstance(code, int):
        code = _CODES.get(code)
    if isinstance(code, grpc.StatusCode) and (raised is None or code is not grpc.StatusCode.OK):
        return code
    return grpc.StatusCode.OK if raised is None else grpc.StatusCode.UNKNOWN


class ClientTelemetry:
    """The outermost stage of a channel to one configured address."""

    def __init__(self, telemetry: Telemetry, address: str) -> None:
        self._tracer = telemetry.tracer
        self._enabled = telemetry.enabled
        self._duration = telemetry.meter.create_histogram(
            semconv.RPC_CLIENT_DURATION,
            unit="s",
            description="How long outgoing calls took.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        host, _, port = address.rpartition(":")
        self._server: dict[str, str | int] = {semconv.SERVER_ADDRESS: host or address}
        if port.isdigit():
            self._server[semconv.SERVER_PORT] = int(port)

    def opening(self, call: OutgoingCall) -> tuple[OutgoingCall, Done | None]:
        """Open the client span and send its context along."""
        if not self._enabled:
            return _with_context(call, carrier.inject()), None
        attributes: dict[str, str | int] = {
            semconv.RPC_SYSTEM: semconv.RPC_SYSTEM_GRPC,
            semconv.RPC_METHOD: call.method,
            **self._server,
        }
        span = self._tracer.start_span(call.method, kind=SpanKind.CLIENT, attributes=attributes)
        started = time.time_ns()

        def ended(code: grpc.StatusCode, at: int) -> None:
            outcome = {semconv.RPC_STATUS_CODE: code.name}
            if code is not grpc.StatusCode.OK:
                outcome[semconv.ERROR_TYPE] = code.name
                span.set_status(Status(StatusCode.ERROR))
            span.set_attributes(outcome)
            self._duration.record(max(0, at - started) / 1e9, {**attributes, **outcome})
            span.end(at)

        context = trace.set_span_in_context(span, Context())
        return _with_context(call, carrier.inject(context)), ended


def _with_context(call: OutgoingCall, sent: Mapping[str, str]) -> OutgoingCall:
    header = sent.get(carrier.TRACEPARENT)
    if header is None:
        return call
    kept = tuple(item for item in call.metadata if item[0] != carrier.TRACEPARENT)
    return replace(call, metadata=(*kept, (carrier.TRACEPARENT, header)))
