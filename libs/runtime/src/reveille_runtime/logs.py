"""Structured logs: one event is one sentence, an `action` code and the ids it is about.

JSON lines unless a person watches. Credentials never reach the output, whatever was logged.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from opentelemetry import trace

from reveille_runtime.streams import whole

Event = MutableMapping[str, Any]

_HIDDEN = "[hidden]"
_SECRET_KEYS = frozenset({"authorization", "token", "secret", "password", "signing_secret"})
_SECRETS = (
    (re.compile(r"awt_[A-Za-z0-9_\-]{6,}"), "awt_" + _HIDDEN),
    (re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/=\-]+"), "Bearer " + _HIDDEN),
    (re.compile(r"\beyJ[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+"), _HIDDEN),
    (re.compile(r"(?<=://)([^/\s:@]+):[^/\s@]+(?=@)"), r"\1:" + _HIDDEN),
)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a module's logger."""
    return structlog.stdlib.get_logger(name)


def tells(name: str, level: int) -> bool:
    """Tell whether a module's logger lets a level through, for lines of which there are floods."""
    return logging.getLogger(name).isEnabledFor(level)


def configure(service: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send this process's logs, those of libraries included, to a stream (stderr by default)."""
    output = whole(sys.stderr) if stream is None else stream

    def add_service(_logger: object, _method: str, event: Event) -> Event:
        event["service"] = service
        return event

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        add_service,
        add_trace,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    render: list[structlog.typing.Processor]
    if output.isatty():
        render = [redact, structlog.dev.ConsoleRenderer()]
    else:
        render = [
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def add_trace(_logger: object, _method: str, event: Event) -> Event:
    """Add the ids of the current span."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = f"{span.trace_id:032x}"
        event["span_id"] = f"{span.span_id:016x}"
    return event


def redact(_logger: object, _method: str, event: Event) -> Event:
    """Hide credentials, by the name of their key or by their look."""
    for key, value in event.items():
        event[key] = _HIDDEN if key.lower() in _SECRET_KEYS else _redacted(value)
    return event


def redact_text(text: str) -> str:
    """Hide what looks like a credential in a text."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN if str(key).lower() in _SECRET_KEYS else _redacted(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return value
