"""When a failed occurrence is tried again, and when it is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reveille_scheduler.domain.retrying import next_after_give_back, next_retry

MINUTE = timedelta(minutes=1)
PLAN = datetime(2026, 6, 1, 12, tzinfo=UTC)
BACKOFF = (MINUTE, 5 * MINUTE, 15 * MINUTE)


def retry(
    attempt: int,
    *,
    now: datetime = PLAN,
    most: int = 9,
    backoff: tuple[timedelta, ...] = BACKOFF,
    deadline: timedelta = timedelta(hours=1),
) -> datetime | None:
    return next_retry(
        now=now,
        attempt=attempt,
        max_attempts=most,
        backoff=backoff,
        until=PLAN + deadline,
    )


@pytest.mark.parametrize(
    ("attempt", "wait"), [(1, MINUTE), (2, 5 * MINUTE), (3, 15 * MINUTE), (4, 15 * MINUTE)]
)
def test_the_wait_is_the_attempts_own_and_the_last_one_repeats(
    attempt: int, wait: timedelta
) -> None:
    assert retry(attempt) == PLAN + wait


def test_without_a_backoff_it_is_tried_again_at_once() -> None:
    assert retry(1, backoff=()) == PLAN


def test_the_last_attempt_is_not_followed_by_another() -> None:
    assert retry(3, most=3) is None


def test_a_retry_never_fires_after_its_deadline() -> None:
    assert retry(1, now=PLAN + timedelta(minutes=59)) == PLAN + timedelta(hours=1)
    assert retry(1, now=PLAN + timedelta(minutes=59, seconds=1)) is None


def test_what_is_given_back_again_and_again_waits_longer_up_to_a_minute() -> None:
    waits = [
        next_after_give_back(now=PLAN, give_backs=count, until=PLAN + timedelta(hours=1))
        for count in (1, 2, 3, 4, 5, 50)
    ]

    assert waits == [PLAN + timedelta(seconds=length) for length in (5, 10, 20, 40, 60, 60)]
