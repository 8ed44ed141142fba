"""Domain errors: a machine's word, a reader's sentence, and what is needed to try again."""

from __future__ import annotations

from reveille_runtime.errors import (
    FieldViolation,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)


def test_an_error_carries_reason_message_and_metadata() -> None:
    error = NotFound("RUN_NOT_FOUND", "no run has that id", {"run_id": "7"})

    assert (error.reason, error.message) == ("RUN_NOT_FOUND", "no run has that id")
    assert error.metadata == {"run_id": "7"}
    assert str(error) == "RUN_NOT_FOUND: no run has that id"


def test_a_reason_alone_reads_as_words() -> None:
    assert NotFound("RUN_NOT_FOUND").message == "run not found"


def test_invalid_arguments_take_the_first_violations_reason() -> None:
    error = InvalidArgument(
        [FieldViolation("cron", "5 fields, not 4", "INVALID_CRON"), FieldViolation("tz", "unknown")]
    )

    assert error.reason == "INVALID_CRON"
    assert error.message == "cron: 5 fields, not 4; tz: unknown"
    assert InvalidArgument.of("a", "b").reason == "INVALID_FIELD"
    assert InvalidArgument(reason="REQUEST_ID_REUSED").reason == "REQUEST_ID_REUSED"


def test_what_may_pass_says_when() -> None:
    assert ResourceExhausted("OVERLOADED", retry_after=1.5).retry_after == 1.5
    assert Unavailable("DATABASE_DOWN").retry_after is None
