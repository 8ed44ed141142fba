"""Lengths of time and points in time, as they are typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reveille_cli.failures import Failure
from reveille_cli.times import duration, instant, rfc3339


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("15m", 900),
        ("1h30m", 5400),
        ("7d", 604800),
    ],
)
def test_lengths(text: str, seconds: float) -> None:
    assert duration(text, "x") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1x", "1h 30m", "h", "9" * 30 + "d"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(Failure):
        duration(text, "x")


def test_points() -> None:
    expected = datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert instant("2026-03-08T07:00:00Z", "x") == expected
    assert instant("2026-03-08T02:00:00-05:00", "x") == expected


@pytest.mark.parametrize("text", ["", "now", "2026-03-08", "2026-03-08T07:00:00"])
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(Failure):
        instant(text, "x")


def test_points_are_written_in_utc() -> None:
    zone = timezone(timedelta(hours=1))
    assert rfc3339(datetime(2026, 3, 8, 7, tzinfo=zone)) == "2026-03-08T06:00:00Z"
    assert rfc3339(datetime(2026, 3, 8, 7, 0, 0, 5, tzinfo=UTC)) == "2026-03-08T07:00:00.000005Z"
