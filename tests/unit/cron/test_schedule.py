"""The schedule's own contract: bounds, ends, counting, and walking back in one step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reveille_cron import CronError, Expression, Schedule, parse, zone
from reveille_cron.walk import last_match


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def schedule(expression: str, name: str = "UTC") -> Schedule:
    return Schedule(parse(expression), zone(name))


def test_next_is_strictly_after_and_previous_strictly_before() -> None:
    noon = schedule("0 12 * * *")

    assert noon.next(at("2026-05-05T12:00:00Z")) == at("2026-05-06T12:00:00Z")
    assert noon.next(at("2026-05-05T11:59:59.999999Z")) == at("2026-05-05T12:00:00Z")
    assert noon.previous(at("2026-05-05T12:00:00Z")) == at("2026-05-04T12:00:00Z")
    assert noon.previous(at("2026-05-05T12:00:00.000001Z")) == at("2026-05-05T12:00:00Z")


def test_the_latest_due_includes_now() -> None:
    noon = schedule("0 12 * * *")

    assert noon.latest_at_or_before(at("2026-05-05T12:00:00Z")) == at("2026-05-05T12:00:00Z")
    assert noon.latest_at_or_before(at("2026-05-05T11:59:59.999999Z")) == at("2026-05-04T12:00:00Z")


def test_instants_are_taken_in_any_zone_and_given_in_utc() -> None:
    tokyo = schedule("0 9 * * *", "Asia/Tokyo")
    fired = tokyo.next(datetime(2026, 7, 14, 9, tzinfo=timezone(timedelta(hours=9))))

    assert fired == at("2026-07-15T00:00:00Z")
    assert fired.tzinfo is UTC


@pytest.mark.parametrize("method", ["next", "previous", "latest_at_or_before"])
def test_an_instant_without_a_zone_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="carries its zone"):
        getattr(schedule("* * * * *"), method)(datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_count_leaves_out_the_start_and_takes_in_the_end() -> None:
    hourly = schedule("@hourly")
    start, end = at("2026-01-01T00:00:00Z"), at("2026-01-01T05:00:00Z")

    assert hourly.count_between(start, end) == 5
    assert hourly.count_between(start, end - timedelta(microseconds=1)) == 4
    assert hourly.count_between(end, end) == 0
    assert hourly.count_between(end, start) == 0


def test_a_count_stops_at_its_limit() -> None:
    minutely = schedule("* * * * *")
    start, end = at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")

    assert minutely.count_between(start, end) == 1024
    assert minutely.count_between(start, end, limit=3) == 3
    assert minutely.count_between(start, end, limit=0) == 0


def test_a_year_of_minutes_costs_one_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def counted(expression: Expression, start: datetime, stop: datetime) -> datetime | None:
        steps.append(start)
        return last_match(expression, start, stop)

    monkeypatch.setattr("reveille_cron.schedule.last_match", counted)
    now = at("2026-12-31T23:59:30Z")

    assert schedule("* * * * *").latest_at_or_before(now) == at("2026-12-31T23:59:00Z")
    assert len(steps) == 2  # one to find the year, one to find the minute


def test_the_horizon_is_40_years_both_ways() -> None:
    leap_sunday = schedule("0 0 29 2 */7")

    assert leap_sunday.next(at("2088-02-29T00:00:00Z")) == at("2128-02-29T00:00:00Z")
    assert leap_sunday.previous(at("2128-02-29T00:00:00Z")) == at("2088-02-29T00:00:00Z")


# A wildcard job at 02:xx on the day New York's clock goes forward. Until 2006 that was another
# day, so the same expression did fire.
SKIPPED = "*/5 2 * 3 0#2"


def test_a_job_whose_only_hour_is_always_skipped_never_fires() -> None:
    skipped = schedule(SKIPPED, "America/New_York")

    assert skipped.next(at("2026-01-01T00:00:00Z")) is None
    assert skipped.upcoming(at("2026-01-01T00:00:00Z"), 3) == []
    assert skipped.previous(at("2026-01-01T00:00:00Z")) == at("2006-03-12T07:55:00Z")
    assert skipped.previous(at("2046-12-31T00:00:00Z")) == at("2006-03-12T07:55:00Z")
    assert skipped.previous(at("2047-01-01T00:00:00Z")) is None


def test_that_it_never_fires_is_an_error_at_save_time() -> None:
    with pytest.raises(CronError, match="never fires in America/New_York") as refused:
        schedule(SKIPPED, "America/New_York").require_firing(at("2026-01-01T00:00:00Z"))

    assert refused.value.reason == "invalid_cron"
    fine = schedule("0 2 * 3 0#2", "America/New_York")
    assert fine.require_firing(at("2026-01-01T00:00:00Z")) == at("2026-03-08T07:00:00Z")


@pytest.mark.parametrize("name", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_ends_of_the_calendar_end_the_search(name: str) -> None:
    daily = schedule("0 0 * * *", name)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    assert daily.next(last) is None
    assert daily.previous(first) is None
    assert daily.latest_at_or_before(first) is None
    newest = daily.latest_at_or_before(last)
    oldest = daily.next(first)
    assert newest is not None
    assert newest.year == 9998
    assert oldest is not None
    assert oldest.year == 2
    assert daily.previous(oldest) is None
    assert daily.next(newest) is None
    assert daily.previous(last) == newest


def test_asking_twice_gives_the_same_answer_whatever_came_between() -> None:
    berlin = schedule("30 2 * * *", "Europe/Berlin")
    after = at("2026-03-28T12:00:00Z")
    before = berlin.next(after)
    berlin.upcoming(at("2030-01-01T00:00:00Z"), 50)

    assert berlin.next(after) == before == at("2026-03-29T01:00:00Z")


def test_schedules_are_values() -> None:
    assert schedule("0 9 * * MON-FRI", "Europe/Rome") == schedule("0 9 * * 1-5", "Europe/Rome")
    assert len({schedule("@daily"), schedule("0 0 * * *"), schedule("@daily", "Europe/Rome")}) == 2
