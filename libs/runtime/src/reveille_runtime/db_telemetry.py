"""Metrics for every named query, and a span for those worth looking at.

A span costs about as much as a fast query, so a query that is quick and succeeds is only counted;
one that is slow, or fails, gets a span of its own with its true start.
"""

from __future__ import annotations

import time
from typing import Protocol
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from reveille_runtime.config import DatabaseSettings
from reveille_runtime.queries import Query
from reveille_runtime.sqlstate import sqlstate

_SLOW_NS = 100_000_000


class DbTelemetry(Protocol):
    """What this module needs of `Telemetry`."""

    @property
    def enabled(self) -> bool: ...  # noqa: D102

    @property
    def tracer(self) -> Tracer: ...  # noqa: D102

    @property
    def meter(self) -> Meter: ...  # noqa: D102


class QueryObserver:
    """Turns finished queries into measurements."""

    def __init__(self, settings: DatabaseSettings, telemetry: DbTelemetry) -> None:
        self._tracer = telemetry.tracer
        self._duration = telemetry.meter.create_histogram(
            "db.client.operation.duration", unit="s", description="Duration of named queries"
        )
        self._wait = telemetry.meter.create_histogram(
            "db.client.connection.wait_time", unit="s", description="Wait for a free connection"
        )
        parts = urlsplit(settings.url)
        self._common = {
            "db.system.name": "postgresql",
            "db.namespace": parts.path.strip("/"),
        }
        self._pool = {"db.client.connection.pool.name": settings.application_name}

    @classmethod
    def create(
        cls, settings: DatabaseSettings, telemetry: DbTelemetry | None
    ) -> QueryObserver | None:
        """Observe only when somebody listens: without it a query costs nothing extra."""
        if telemetry is None or not telemetry.enabled:
            return None
        return cls(settings, telemetry)

    def waited(self, asked_ns: int) -> None:
        """Record how long the pool let us wait."""
        self._wait.record((time.time_ns() - asked_ns) / 1e9, self._pool)

    def succeeded(self, query: Query, started_ns: int) -> None:
        """Record a query that gave its answer."""
        ended = time.time_ns()
        attributes = {**self._common, "db.query.summary": query.name}
        self._duration.record((ended - started_ns) / 1e9, attributes)
        if ended - started_ns >= _SLOW_NS:
            self._span(query, started_ns, ended, attributes, None)

    def failed(self, query: Query, started_ns: int, error: Exception) -> None:
        """Record a query that did not."""
        ended = time.time_ns()
        kind = sqlstate(error) or type(error).__qualname__
        attributes = {**self._common, "db.query.summary": query.name, "error.type": kind}
        self._duration.record((ended - started_ns) / 1e9, attributes)
        self._span(query, started_ns, ended, attributes, error)

    def _span(
        self,
        query: Query,
        started_ns: int,
        ended_ns: int,
        attributes: dict[str, str],
        error: Exception | None,
    ) -> None:
        if not trace.get_current_span().is_recording():
            return
        span = self._tracer.start_span(
            query.name,
            kind=SpanKind.CLIENT,
            attributes={**attributes, "db.query.text": query.sql},
            start_time=started_ns,
        )
        if error is not None:
            if state := sqlstate(error):
                span.set_attribute("db.response.status_code", state)
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end(end_time=ended_ns)
