"""How an attempt ends, what follows it, and what of its answer is believed."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_heartbeat.domain.answer import (
    MAX_BYTES,
    MAX_EVENT_BYTES,
    Answer,
    BadAnswer,
    answer_of,
    for_event,
    read_document,
)
from reveille_heartbeat.domain.followup import joined_state
from reveille_heartbeat.domain.outcome import (
    MAX_LINE,
    End,
    EndKind,
    classify,
    exit_text,
    last_line,
)
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.redaction import Redactor
from reveille_heartbeat.domain.states import IssueState, RunState, WakeupState
from reveille_heartbeat.domain.values import FailureClass

ANSWER = Answer("fine", b'{"summary":"fine"}', IssueState.DONE)


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        (End(EndKind.EXITED, 0), RunState.SUCCEEDED, None),
        (End(EndKind.EXITED, None), RunState.SUCCEEDED, None),
        (End(EndKind.EXITED, 1), RunState.FAILED, Reason.ADAPTER_FAILED),
        (End(EndKind.EXITED, 137), RunState.FAILED, Reason.ADAPTER_FAILED),
        (End(EndKind.RAN_OUT, 143), RunState.TIMED_OUT, Reason.RUN_TIMEOUT),
        (End(EndKind.TOO_MUCH_OUTPUT), RunState.FAILED, Reason.OUTPUT_LIMIT),
        (End(EndKind.NOT_STARTED, message="no"), RunState.FAILED, Reason.SETUP_FAILED),
        (End(EndKind.NO_ROOM, message="no"), RunState.FAILED, Reason.SETUP_FAILED),
        (End(EndKind.BROKEN, message="no"), RunState.FAILED, Reason.ADAPTER_FAILED),
        (End(EndKind.LOST), RunState.FAILED, Reason.PROCESS_LOST),
        (End(EndKind.EXITED, 75), RunState.FAILED, Reason.TRANSIENT_FAILURE),
        (End(EndKind.EXITED, 78), RunState.FAILED, Reason.CONFIGURATION_INCOMPLETE),
        (End(EndKind.INTERRUPTED), RunState.INTERRUPTED, Reason.SHUTDOWN),
    ],
)
def test_an_end_is_one_outcome(end: End, state: RunState, reason: Reason | None) -> None:
    outcome = classify(end, ANSWER)

    assert (outcome.state, outcome.reason) == (state, reason)
    assert outcome.summary == "fine"
    assert (outcome.message == "") == (state is RunState.SUCCEEDED)
    # Only a success moves the issue.
    assert (outcome.issue_status is IssueState.DONE) == (state is RunState.SUCCEEDED)


def test_what_a_shell_means_by_its_status_is_said_in_words() -> None:
    message = classify(End(EndKind.EXITED, 127, "exec: no-such: not found"), None).message

    assert "status 127" in message
    assert "the program was not found" in message
    assert message.endswith("its last words: exec: no-such: not found")
    assert "cannot be executed" in exit_text(126)
    assert exit_text(3) == "the process exited with status 3"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"first\nlast\n\n  \n", "last"),
        (b"a\r\n\tb\x1b[31m \x07\xff\n", "b\ufffd[31m \ufffd\ufffd"),
        ("txt.\u202eexe".encode(), "txt.\ufffdexe"),
        (b"x" * 500, "x" * (MAX_LINE - 1) + "…"),
    ],
)
def test_the_last_line_is_safe_to_show(output: bytes, line: str) -> None:
    assert last_line(output) == line


def test_only_what_an_agent_brought_itself_is_a_late_result() -> None:
    killed = classify(End(EndKind.EXITED, 143), None)

    assert not killed.brings_result
    assert classify(End(EndKind.EXITED, 143), ANSWER).brings_result
    assert classify(End(EndKind.EXITED, 0), None).brings_result


def test_an_answer_that_cannot_be_used_fails_a_success_and_no_more() -> None:
    assert classify(End(EndKind.EXITED, 0), None, "bad").message == "bad"
    failed = classify(End(EndKind.EXITED, 2, "oh no"), None, "the result file is not UTF-8")
    assert (failed.reason, failed.failure_class) == (Reason.ADAPTER_FAILED, FailureClass.OTHER)
    # Whoever meant to say in it why it failed hears why nobody listened.
    assert failed.message == (
        "the process exited with status 2, and the result file is not UTF-8; its last words: oh no"
    )


def test_what_joined_a_refused_wake_is_cancelled_and_else_ends_as_it_did() -> None:
    assert joined_state(WakeupState.SKIPPED) is WakeupState.CANCELLED
    assert joined_state(WakeupState.COMPLETED) is WakeupState.COMPLETED


def test_an_answer_keeps_its_known_fields() -> None:
    answer = answer_of(
        {"summary": "s", "result": [1], "usage": {"t": 1}, "issue_status": "done", "x": 1}
    )

    assert (answer.summary, answer.issue_status) == ("s", IssueState.DONE)
    assert json.loads(answer.document) == {
        "summary": "s",
        "result": [1],
        "usage": {"t": 1},
        "issue_status": "done",
    }


def test_every_text_of_an_answer_is_redacted_once_and_our_own_names_are_none_of_them() -> None:
    seen: list[str] = []
    # The first is a word of ours, too.
    redactor = Redactor(["summary", "ключ-ключ"])

    def redact(text: str) -> str:
        seen.append(text)
        return redactor.redact_text(text)

    result = {"ключ-ключ": ["a summary", {"x": "sum\x00mary", "y": 1}]}
    answer = answer_of({"summary": "ключ-ключ!", "result": result}, redact)

    assert answer.summary == "*********!"
    assert json.loads(answer.document) == {
        "summary": "*********!",
        "result": {"*********": ["a *******", {"x": "sum\ufffdmary", "y": 1}]},
    }
    texts = ["ключ-ключ!", "ключ-ключ", "a summary", "x", "sum\ufffdmary", "y"]
    assert sorted(seen) == sorted(texts)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing",
        b"\xff",
        b"[]",
        b'{"summary": 1}',
        b'{"issue_status": 1}',
        b'{"issue_status": "x"}',
        b'{"result": Infinity}',
        b'{"result": 1e999}',
        b'{"usage": [{"cost": -1e400}]}',
        b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
    ],
)
def test_an_answer_that_is_not_one_is_refused_in_words(content: bytes) -> None:
    with pytest.raises(BadAnswer, match="result file"):
        answer_of(read_document(content))


LEAVES = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_json_holds_can_be_stored(value: object) -> None:
    answer = answer_of(read_document(json.dumps({"result": value}).encode()))

    answer.document.decode("utf-8")
    # An escape of its own, and not the tail of an escaped backslash.
    assert re.search(rb"(?<!\\)(?:\\\\)*\\u0000", answer.document) is None


def test_a_large_answer_is_told_by_its_summary() -> None:
    assert for_event(None, "s") is None
    assert for_event(b'{"a":1}', "s") == {"a": 1}
    large = b'{"a":"' + b"x" * MAX_EVENT_BYTES + b'"}'
    assert for_event(large, "s") == {"summary": "s", "truncated": True}
    assert for_event(b'{"a":Infinity}', "s") == {"summary": "s", "truncated": True}
