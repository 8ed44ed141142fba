"""What kind of failure it was, and what it cost: by structured fields alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from reveille_heartbeat.domain.answer import AgentError, BadAnswer, answer_of, read_document
from reveille_heartbeat.domain.outcome import End, EndKind, classify
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RunState
from reveille_heartbeat.domain.usage import MAX_MODELS, Usage
from reveille_heartbeat.domain.values import FailureClass


def answer_with(**fields: Any) -> Any:
    return answer_of(read_document(json.dumps(fields).encode()))


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("transient", Reason.TRANSIENT_FAILURE),
        ("quota", Reason.PROVIDER_QUOTA),
        ("refusal", Reason.MODEL_REFUSAL),
        ("credentials", Reason.CREDENTIALS_REJECTED),
        ("configuration", Reason.CONFIGURATION_INCOMPLETE),
        ("max_turns", Reason.MAX_TURNS),
    ],
)
def test_an_agent_names_the_class_of_its_failure(named: str, reason: Reason) -> None:
    answer = answer_with(
        error={"class": named, "message": "so it is", "retry_not_before": "2030-01-31T12:00:00Z"}
    )

    # Also when its process went well: who says that it failed has failed.
    for exit_code in (0, 1, None):
        outcome = classify(End(EndKind.EXITED, exit_code), answer)
        assert (outcome.state, outcome.reason) == (RunState.FAILED, reason)
        assert outcome.failure_class == named
        assert outcome.message == "so it is"
        assert outcome.retry_not_before == datetime(2030, 1, 31, 12, tzinfo=UTC)


def test_words_in_output_or_messages_make_no_class() -> None:
    loud = "429 Too Many Requests: rate limit, please retry later; overloaded_error"

    by_words = classify(End(EndKind.EXITED, 1, loud), answer_with(summary=loud))
    assert by_words.failure_class is FailureClass.OTHER
    assert by_words.reason is Reason.ADAPTER_FAILED
    unnamed = classify(End(EndKind.EXITED, 1), answer_with(error={"message": loud}))
    assert unnamed.failure_class is FailureClass.OTHER
    assert unnamed.message == loud
    well = classify(End(EndKind.EXITED, 0), answer_with(summary=loud))
    assert (well.state, well.failure_class) == (RunState.SUCCEEDED, FailureClass.NONE)


def test_two_exit_statuses_have_a_class_and_the_agents_own_word_goes_before() -> None:
    assert classify(End(EndKind.EXITED, 75), None).failure_class is FailureClass.TRANSIENT
    assert classify(End(EndKind.EXITED, 78), None).failure_class is FailureClass.CONFIGURATION
    assert classify(End(EndKind.EXITED, 76), None).failure_class is FailureClass.OTHER
    said = answer_with(error={"class": "quota"})
    assert classify(End(EndKind.EXITED, 75), said).failure_class is FailureClass.QUOTA
    silent = answer_with(error={"message": "no"})
    assert classify(End(EndKind.EXITED, 75), silent).failure_class is FailureClass.TRANSIENT


@pytest.mark.parametrize("kind", [EndKind.RAN_OUT, EndKind.TOO_MUCH_OUTPUT, EndKind.LOST])
def test_what_we_ended_ourselves_is_not_the_agents_to_class(kind: EndKind) -> None:
    outcome = classify(End(kind), answer_with(error={"class": "transient"}))

    assert outcome.failure_class in (FailureClass.OTHER, FailureClass.LOST)


@pytest.mark.parametrize(
    "error",
    [
        "text",
        {"class": "lost"},
        {"class": "other"},
        {"class": ["transient"]},
        {"message": 5},
        {"retry_not_before": "tomorrow"},
        {"retry_not_before": "2030-01-31T12:00:00"},
        {"retry_not_before": 1893456000},
    ],
)
def test_an_error_of_another_form_is_refused_by_name(error: Any) -> None:
    with pytest.raises(BadAnswer, match="error"):
        answer_with(error=error)


def test_an_error_may_be_left_out_or_empty() -> None:
    assert answer_with(error=None).error is None
    assert answer_with(error={}).error == AgentError(FailureClass.OTHER, "", None)


def test_usage_is_one_object_or_one_per_model_and_the_larger_numbers_count() -> None:
    one = answer_with(usage={"provider": "p", "model": "m", "input_tokens": 3, "cost_usd": 0.5})
    assert one.usage == (Usage("p", "m", 3, cost_cents=Decimal("50.000000")),)
    two = answer_with(
        usage=[
            {"provider": "p", "model": "m", "input_tokens": 3, "cost_cents": "1.5"},
            {"provider": "p", "model": "n", "output_tokens": 7},
            {"provider": "p", "model": "m", "input_tokens": 2, "cached_input_tokens": 1},
        ]
    )
    assert two.usage == (
        Usage("p", "m", 3, 1, 0, Decimal("1.500000")),
        Usage("p", "n", 0, 0, 7, None),
    )
    assert answer_with(usage=None).usage == ()


@pytest.mark.parametrize(
    "usage",
    [
        5,
        ["m"],
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"output_tokens": True},
        {"output_tokens": 10**16},
        {"cost_cents": "much"},
        {"cost_usd": -0.1},
        {"cost_usd": "NaN"},
        {"cost_cents": 10**13},
        {"model": "m" * 101},
        {"provider": 1},
        [{}] * (MAX_MODELS + 1),
    ],
)
def test_a_usage_that_cannot_be_booked_is_refused_by_name(usage: Any) -> None:
    with pytest.raises(BadAnswer, match="usage"):
        answer_with(usage=usage)


def test_what_a_failed_attempt_used_is_not_forgotten() -> None:
    answer = answer_with(usage={"input_tokens": 1}, error={"class": "transient"})

    assert classify(End(EndKind.EXITED, 1), answer).usage == answer.usage
    assert classify(End(EndKind.RAN_OUT), answer).usage == answer.usage
