"""Trace context that rests in rows: carriers, stored span ids, and spans emitted by them.

A span exists only once it ends, so a killed process loses the ones it had open. The spans that
hold a trace together (a trigger's root, a run) therefore get their ids first: the row stores them
as a `SpanSeed`, children are parented on it from then on, and whoever settles the row, perhaps
another process after a crash, emits the span under those very ids.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from opentelemetry.util.types import Attributes

TRACEPARENT = "traceparent"
PARENT_SPAN = "parent_span_id"
# What the tables' CHECK allows a carrier to hold, as JSON text.
MAX_CARRIER_BYTES = 512

Carrier = Mapping[str, str]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class SpanSeed:
    """The identity of a span that will be emitted later."""

    trace_id: int
    span_id: int
    parent_span_id: int | None = None
    sampled: bool = True

    @classmethod
    def root(cls, *, sampled: bool = True) -> SpanSeed:
        """Start a new trace."""
        return cls(_random_id(128), _random_id(64), None, sampled)

    @classmethod
    def under(cls, carrier: Carrier | None, *, sampled: bool = True) -> SpanSeed:
        """Make a child of the span a carrier names; of an empty carrier, a new trace."""
        parent = _identity(carrier)
        if parent is None:
            return cls.root(sampled=sampled)
        trace_id, span_id, sampled = parent
        return cls(trace_id, _random_id(64), span_id, sampled)

    @classmethod
    def from_carrier(cls, carrier: Carrier) -> SpanSeed | None:
        """Read back what `carrier()` stored; None when there is nothing usable."""
        own = _identity(carrier)
        if own is None:
            return None
        trace_id, span_id, sampled = own
        parent = carrier.get(PARENT_SPAN, "")
        parent_id = int(parent, 16) if _SPAN_ID.fullmatch(parent) else None
        return cls(trace_id, span_id, parent_id, sampled)

    def carrier(self) -> dict[str, str]:
        """Return what a row stores: children started from it are children of this span."""
        stored = {
            TRACEPARENT: f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"
        }
        if self.parent_span_id is not None:
            stored[PARENT_SPAN] = f"{self.parent_span_id:016x}"
        return stored

    def child(self) -> SpanSeed:
        """Make the seed of a child span."""
        return replace(self, span_id=_random_id(64), parent_span_id=self.span_id)


def new_span_ids(parent: Carrier | None = None) -> SpanSeed:
    """Make the identity of a span under the given carrier, or under the current span."""
    return SpanSeed.under(inject() if parent is None else parent)


def inject(context: Context | None = None) -> dict[str, str]:
    """Return the current span as a carrier; empty outside any trace."""
    span = trace.get_current_span(context).get_span_context()
    if not span.is_valid:
        return {}
    return SpanSeed(span.trace_id, span.span_id, None, bool(span.trace_flags.sampled)).carrier()


def extract(carrier: Carrier | None) -> Context:
    """Return a context whose current span is the carrier's; an empty context if it has none.

    Nothing else is read: no baggage, no vendor state.
    """
    span = _span_context(carrier)
    return Context() if span is None else _context_of(span)


def link(carrier: Carrier | None, attributes: Attributes = None) -> Link | None:
    """Return a link to the carrier's span, or None when it names none."""
    span = _span_context(carrier)
    return None if span is None else Link(span, attributes)


def links(carriers: Iterable[Carrier | None], attributes: Attributes = None) -> list[Link]:
    """Return a link for each carrier that names a span."""
    found = (link(carrier, attributes) for carrier in carriers)
    return [each for each in found if each is not None]


def checked(carrier: Mapping[str, object] | None) -> dict[str, str]:
    """Keep of a carrier from elsewhere only what we would have written ourselves."""
    if not carrier:
        return {}
    texts = {key: value for key, value in carrier.items() if isinstance(value, str)}
    seed = SpanSeed.from_carrier(texts)
    return {} if seed is None else seed.carrier()


def traceparent(carrier: Carrier) -> str | None:
    """Return the W3C header value, as an agent's TRACEPARENT gets it."""
    return checked(carrier).get(TRACEPARENT)


class StoredIdGenerator(IdGenerator):
    """Random ids, except inside `emit_span`, where they are the stored ones."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()

    def generate_span_id(self) -> int:
        """Return the span id of the seed being emitted, else a random one."""
        seed = _EMITTING.get()
        return self._random.generate_span_id() if seed is None else seed.span_id

    def generate_trace_id(self) -> int:
        """Return the trace id of the seed being emitted, else a random one."""
        seed = _EMITTING.get()
        return self._random.generate_trace_id() if seed is None else seed.trace_id


_EMITTING: ContextVar[SpanSeed | None] = ContextVar("reveille_emitting", default=None)


def start_seeded(
    tracer: Tracer,
    seed: SpanSeed,
    name: str,
    *,
    start: datetime | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[Link] = (),
    attributes: Attributes = None,
) -> Span:
    """Start a span under a seed's ids; the caller ends it."""
    parent = Context()
    if seed.parent_span_id is not None:
        parent = _context_of(_remote(seed.trace_id, seed.parent_span_id, seed.sampled))
    token = _EMITTING.set(seed)
    try:
        return tracer.start_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=None if start is None else nanoseconds(start),
        )
    finally:
        _EMITTING.reset(token)


def emit_span(
    tracer: Tracer,
    seed: SpanSeed,
    name: str,
    *,
    start: datetime,
    end: datetime,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Sequence[Link] = (),
    attributes: Attributes = None,
    error: str | None = None,
    events: Sequence[tuple[str, datetime]] = (),
) -> None:
    """Emit a whole span under stored ids, with the times of its row.

    `error` is what went wrong: it makes the span's status an error. Emitting one seed twice (a
    repeated settle) gives two equal spans, which readers merge by id.
    """
    span = start_seeded(
        tracer, seed, name, start=start, kind=kind, links=links, attributes=attributes
    )
    for event, moment in events:
        span.add_event(event, timestamp=nanoseconds(moment))
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(nanoseconds(max(start, end)))


def nanoseconds(moment: datetime) -> int:
    """Return an aware time as nanoseconds since the epoch, without float rounding."""
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1_000


def _random_id(bits: int) -> int:
    # No secret: unlike those of `secrets`, it costs no system call.
    return random.getrandbits(bits) or 1


def _remote(trace_id: int, span_id: int, sampled: bool) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def _context_of(span: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(span), Context())


def _span_context(carrier: Carrier | None) -> SpanContext | None:
    found = _identity(carrier)
    return None if found is None else _remote(*found)


def _identity(carrier: Carrier | None) -> tuple[int, int, bool] | None:
    """Read which span of which trace a carrier names, and whether it is sampled."""
    match = _TRACEPARENT.fullmatch((carrier or {}).get(TRACEPARENT, ""))
    if match is None:
        return None
    trace_id, span_id, flags = match.groups()
    found = int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & TraceFlags.SAMPLED)
    return found if found[0] and found[1] else None
