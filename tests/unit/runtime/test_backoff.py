"""Retry schedules: growing, bounded, the same in every replica, and apart for different rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reveille_runtime.backoff import Backoff

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_without_jitter_the_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first=1, longest=10, jitter=0)
    assert [backoff.delay(n) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_shortens_only_and_by_no_more_than_its_share() -> None:
    backoff = Backoff(first=8, longest=8, jitter=0.25)
    pauses = {backoff.delay(1, seed) for seed in range(500)}
    assert min(pauses) >= 6
    assert max(pauses) <= 8
    assert len(pauses) == 500
    assert max(pauses) - min(pauses) > 1.8


def test_the_same_row_and_attempt_give_the_same_pause() -> None:
    assert Backoff(1, 60).delay(3, "row") == Backoff(1, 60).delay(3, "row")
    assert Backoff(1, 60).delay(3, "row") != Backoff(1, 60).delay(3, "other")


def test_a_huge_attempt_count_does_not_overflow() -> None:
    assert Backoff(first=0.1, longest=60, jitter=0).delay(10**9) == 60
    assert Backoff(first=0.1, longest=60, factor=1, jitter=0).delay(10**9) == 0.1


def test_next_at_ends_with_the_deadline() -> None:
    backoff = Backoff(first=60, longest=60, jitter=0)
    assert backoff.next_at(NOW, 1) == NOW + timedelta(seconds=60)
    exactly = NOW + timedelta(seconds=60)
    assert backoff.next_at(NOW, 1, deadline=exactly) == exactly
    assert backoff.next_at(NOW, 1, deadline=exactly - timedelta(microseconds=1)) is None


@pytest.mark.parametrize(
    ("first", "longest", "factor", "jitter"),
    [(0, 1, 2, 0), (2, 1, 2, 0), (1, 2, 0.5, 0), (1, 2, 2, 1), (1, 2, 2, -0.1)],
)
def test_an_unusable_schedule_is_refused(
    first: float, longest: float, factor: float, jitter: float
) -> None:
    with pytest.raises(ValueError, match="not a usable backoff"):
        Backoff(first, longest, factor, jitter)


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        Backoff(1, 2).delay(0)
