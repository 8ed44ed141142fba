"""Span exporter that appends OTLP JSON lines to a file, for `reveille up` and `reveille trace`.

One line is one ExportTraceServiceRequest in OTLP's JSON form, which differs from protobuf's: ids
are hexadecimal and enums are numbers. A line is one write to a file opened for appending, so a
killed process leaves at most its last, unwritten batch behind.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_ID_FIELDS = ("traceId", "spanId", "parentSpanId")


def traces_file(directory: Path, service: str, pid: int) -> Path:
    """Name the file a process writes its spans to."""
    return directory / f"{service}-{pid}-traces.jsonl"


class OtlpFileSpanExporter(SpanExporter):
    """Writes to a file that is made when the first spans come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the spans as one line."""
        document = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        line = json.dumps(_hexadecimal(document), separators=(",", ":")).encode() + b"\n"
        try:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            os.write(self._descriptor, line)
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 (the interface)
        """Do nothing: a write is not kept back here."""
        return True


def _hexadecimal(document: dict[str, Any]) -> dict[str, Any]:
    for resource in document.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for part in (span, *span.get("links", ())):
                    for name in _ID_FIELDS:
                        if name in part:
                            part[name] = base64.b64decode(part[name]).hex()
    return document
