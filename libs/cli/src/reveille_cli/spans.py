"""Spans out of the OTLP JSON files of a data directory, merged by id and put into a tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

LOST = "lost span"
_ERROR = 2
_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A span of another trace, or of this one, that belongs to it otherwise than as its parent."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened while a span was open."""

    name: str
    time: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One span; times are nanoseconds since the epoch."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    kind: str
    start: int
    end: int
    error: bool
    message: str
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A span and what happened under it; `span` is None for one that others name but none has."""

    span_id: str
    span: Span | None
    children: tuple[Node, ...]

    @property
    def start(self) -> int:
        """When it began, of a lost span the first that is known."""
        return self.span.start if self.span else min(child.start for child in self.children)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole trace: its trees, and the spans of other traces that link to it."""

    trace_id: str
    roots: tuple[Node, ...]
    linked_from: tuple[Span, ...]

    def nodes(self) -> Iterator[Node]:
        """Yield every node, parents first."""
        for root in self.roots:
            yield from root.walk()

    @property
    def spans(self) -> list[Span]:
        """The spans there are, parents first."""
        return [node.span for node in self.nodes() if node.span]

    @property
    def lost(self) -> int:
        """How many spans others name as their parent and none has written."""
        return sum(node.span is None for node in self.nodes())

    @property
    def start(self) -> int:
        """When it began."""
        return min(span.start for span in self.spans)

    @property
    def end(self) -> int:
        """When its last span ended."""
        return max(span.end for span in self.spans)


def read_trace(directory: Path, trace_id: str) -> Trace | None:
    """Read one trace from all files of a directory; None when no span of it is there."""
    own: list[Span] = []
    linked: list[Span] = []
    for span in _spans(directory, trace_id):
        if span.trace_id == trace_id:
            own.append(span)
        elif any(link.trace_id == trace_id for link in span.links):
            linked.append(span)
    if not own:
        return None
    roots = tree(merge(own))
    return Trace(trace_id, roots, tuple(sorted(merge(linked), key=_by_start)))


def merge(spans: Iterable[Span]) -> list[Span]:
    """Keep one span of each id: a repeated settlement emits equal ones."""
    merged: dict[tuple[str, str], Span] = {}
    for span in spans:
        key = (span.trace_id, span.span_id)
        known = merged.get(key)
        merged[key] = span if known is None else _merged(known, span)
    return list(merged.values())


def tree(spans: Sequence[Span]) -> tuple[Node, ...]:
    """Put spans under their parents; a parent nobody wrote becomes a node without a span."""
    known = {span.span_id: span for span in spans}
    below: dict[str, list[Span]] = {}
    for span in spans:
        below.setdefault(span.parent_id, []).append(span)
    roots = [known[span.span_id] for span in below.get("", ())]
    nodes = [_node(span, below) for span in roots]
    for parent_id in below.keys() - known.keys() - {""}:
        children = tuple(_node(span, below) for span in sorted(below[parent_id], key=_by_start))
        nodes.append(Node(parent_id, None, children))
    return tuple(sorted(nodes, key=lambda node: node.start))


def _node(span: Span, below: Mapping[str, list[Span]]) -> Node:
    children = sorted(below.get(span.span_id, ()), key=_by_start)
    return Node(span.span_id, span, tuple(_node(child, below) for child in children))


def _by_start(span: Span) -> tuple[int, int]:
    return span.start, -span.end


def _merged(first: Span, second: Span) -> Span:
    longer = second if second.end > first.end else first
    return replace(
        longer,
        start=min(first.start, second.start),
        error=first.error or second.error,
        message=first.message or second.message,
        attributes={**first.attributes, **second.attributes},
        events=max(first.events, second.events, key=len),
        links=max(first.links, second.links, key=len),
    )


def _spans(directory: Path, trace_id: str) -> Iterator[Span]:
    """Yield the spans of every line that mentions the trace."""
    for file in sorted(directory.glob("*.jsonl")):
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if trace_id not in line:
                    continue
                try:
                    document = json.loads(line)
                except ValueError:
                    continue  # a process was killed while it wrote this line, or still writes it
                yield from _of_document(document)


def _of_document(document: Mapping[str, Any]) -> Iterator[Span]:
    for resource in document.get("resourceSpans", ()):
        about = _attributes(resource.get("resource", {}))
        service = str(about.get("service.name", "unknown"))
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _span(span, service)


def _span(entry: Mapping[str, Any], service: str) -> Span:
    status = entry.get("status", {})
    kind = entry.get("kind", 0)
    return Span(
        trace_id=entry["traceId"],
        span_id=entry["spanId"],
        parent_id=entry.get("parentSpanId", ""),
        name=entry.get("name", ""),
        service=service,
        kind=_KINDS[kind] if kind in range(len(_KINDS)) else str(kind),
        start=int(entry.get("startTimeUnixNano", 0)),
        end=int(entry.get("endTimeUnixNano", 0)),
        error=status.get("code") == _ERROR,
        message=status.get("message", ""),
        attributes=_attributes(entry),
        events=tuple(
            SpanEvent(each.get("name", ""), int(each.get("timeUnixNano", 0)), _attributes(each))
            for each in entry.get("events", ())
        ),
        links=tuple(
            SpanLink(each["traceId"], each["spanId"], _attributes(each))
            for each in entry.get("links", ())
        ),
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {each["key"]: _value(each.get("value", {})) for each in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> Any:
    for name, content in value.items():
        if name == "intValue":
            return int(content)
        if name == "arrayValue":
            return [_value(each) for each in content.get("values", ())]
        return content
    return None
