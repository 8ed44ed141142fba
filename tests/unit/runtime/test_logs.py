"""Logs: one shape for ours and for libraries, and no credential in any of them."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from reveille_runtime import logs
from reveille_runtime.telemetry import Telemetry
from reveille_testkit.rpc import SpanLog


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("autopilot", "info", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def entries(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_an_event_has_sentence_action_and_ids(output: io.StringIO) -> None:
    logs.get_logger("reveille.test").info("A run was settled.", action="run.settled", run_id="r-1")

    (entry,) = entries(output)
    assert entry["event"] == "A run was settled."
    assert entry["action"] == "run.settled"
    assert entry["run_id"] == "r-1"
    assert (entry["service"], entry["level"], entry["logger"]) == (
        "autopilot",
        "info",
        "reveille.test",
    )


def test_libraries_come_out_in_the_same_shape(output: io.StringIO) -> None:
    logging.getLogger("some.library").warning("%s is slow", "it", extra={"action": "lib.slow"})
    logging.getLogger("some.library").debug("not shown")

    (entry,) = entries(output)
    assert (entry["event"], entry["action"], entry["service"]) == (
        "it is slow",
        "lib.slow",
        "autopilot",
    )


def test_python_warnings_are_logged(output: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)

    assert "old" in entries(output)[0]["event"]


def test_the_level_is_kept(output: io.StringIO) -> None:
    logs.get_logger("x").debug("Not shown.", action="a")

    assert entries(output) == []


def test_the_current_span_is_named(output: io.StringIO) -> None:
    telemetry = Telemetry.of("test", [SpanLog()])

    with telemetry.tracer.start_as_current_span("work") as span:
        logs.get_logger("x").info("Inside.", action="a")
    logs.get_logger("x").info("Outside.", action="a")

    inside, outside = entries(output)
    assert inside["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert inside["span_id"] == f"{span.get_span_context().span_id:016x}"
    assert "trace_id" not in outside


SECRETS = [
    "awt_Zm9vYmFyYmF6cXV4Zm9v",
    "Bearer abc.def-ghi",
    "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1In0.c2lnbmF0dXJl",
    "postgresql://reveille:hunter2secret@127.0.0.1/db",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_credentials_are_hidden_wherever_they_are(output: io.StringIO, secret: str) -> None:
    log = logs.get_logger("x")

    log.info("POST /hooks/%s HTTP/1.1", secret, action="a")
    log.info("nested", action="a", where={"deep": [secret, {"er": secret}]}, path=secret)
    logging.getLogger("lib").error("got %s", secret)
    try:
        int(secret)
    except ValueError:
        log.exception("failed", action="a")

    hidden = secret.rpartition("_")[2] if "awt_" in secret else secret
    assert "hunter2secret" not in output.getvalue()
    assert hidden not in output.getvalue()
    assert len(entries(output)) == 4


def test_secret_fields_are_hidden_by_name(output: io.StringIO) -> None:
    logs.get_logger("x").info("x", action="a", token="plain", headers={"Authorization": "plain"})

    assert "plain" not in output.getvalue()
    assert entries(output)[0]["token"] == "[hidden]"


def test_a_terminal_gets_lines_for_people() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = Terminal()
    try:
        logs.configure("autopilot", "info", stream)
        logs.get_logger("x").info("A sentence.", action="a.b")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        structlog.reset_defaults()

    assert "A sentence." in stream.getvalue()
    assert not stream.getvalue().startswith("{")
