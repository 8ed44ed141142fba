"""croniter as an oracle where it is right, and the list of where it is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from croniter import CroniterError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from reveille_cron import CronError, Schedule, parse, zone

DATA = Path(__file__).parents[2] / "data" / "cron"


def by_croniter(expression: str, name: str, after: datetime, count: int) -> list[datetime]:
    walk = croniter(expression, after.astimezone(zone(name)), ret_type=datetime)
    return [walk.get_next().astimezone(UTC) for _ in range(count)]


def by_us(expression: str, name: str, after: datetime, count: int) -> list[datetime]:
    return Schedule(parse(expression), zone(name)).upcoming(after, count)


@st.composite
def plain_fields(draw: st.DrawFn, low: int, high: int) -> str:
    """Values, real ranges, steps within the field: what both read alike."""
    texts = []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(low, high - 1))
        last = draw(st.integers(first + 1, high))
        step = draw(st.integers(1, last - first))
        texts.append(
            draw(st.sampled_from([str(first), f"{first}-{last}", f"{first}-{last}/{step}"]))
        )
    return ",".join(texts)


@st.composite
def plain_expressions(draw: st.DrawFn) -> str:
    minute = draw(st.just("*") | plain_fields(0, 59))
    hour = draw(st.just("*") | plain_fields(0, 23))
    # Day fields of which one may be a bare star: with a step croniter forgets Debian's rule.
    day = draw(st.sampled_from(["*", "L"]) | plain_fields(1, 28))
    weekday = draw(st.sampled_from(["*", "*", "1#1", "5#4"]) if day == "*" else st.just("*"))
    if day != "*" and draw(st.booleans()):
        weekday = draw(plain_fields(0, 6))
    month = draw(st.just("*") | plain_fields(1, 12))
    return f"{minute} {hour} {day} {month} {weekday}"


@settings(max_examples=300, deadline=None)
@given(
    plain_expressions(),
    st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_agrees_with_croniter_where_no_clock_changes(expression: str, after: datetime) -> None:
    assert by_us(expression, "UTC", after, 5) == by_croniter(expression, "UTC", after, 5)


# Where croniter 7.0 is wrong, by the rule in the last column. If an entry stops failing, croniter
# was mended: strike it off.
FAULTS = [
    ("1-1 * * * *", "UTC", "2024-01-01T00:00:30Z", "a range of one value is that value"),
    ("0 0 * * 3-3", "UTC", "2024-01-01T00:00:00Z", "the same for weekdays"),
    ("0 16 */2 * sat", "UTC", "2023-05-02T00:00:00Z", "*/2 begins with *: both must match"),
    ("0 0 13 * */5", "UTC", "2024-01-01T00:00:00Z", "the same for weekdays"),
    ("30 1 * * *", "America/New_York", "2026-11-01T04:00:00Z", "a fixed job repeats nothing"),
    ("*/20 3 * * *", "Europe/Athens", "2016-03-27T00:00:01Z", "a wildcard job makes up nothing"),
    ("0 */2 * * *", "America/New_York", "2026-03-08T06:00:00Z", "the same with a starred hour"),
    ("*/30 1 1 11 *", "America/New_York", "2026-11-01T04:00:00Z", "a wildcard job repeats"),
    ("0 6 30 12 *", "Pacific/Apia", "2011-12-29T22:00:00Z", "a jump of a day makes up nothing"),
]
# What it cannot do at all.
UNABLE = ["0 9 * * 1#1,FRI", "0 9 10 * 1#1", "0 9 L * 1#1"]
LENIENT = [
    ("0 22-2 * * *", "a range that wraps around"),
    ("0 0 * * FRI-MON", "the same with names"),
    ("0 0 * * 7-1", "a range that starts with 7"),
    ("*/61 * * * *", "a step larger than the field"),
    ("0 0 *\n* *", "a line feed as a blank"),
    ("0 0 30 2 *", "a date that never comes"),
    ("0 0 15W * *", "the nearest working day, which Debian does not know"),
    ("R * * * *", "a random minute"),
    ("0 0 * * * 5 2030", "a sixth and seventh field"),
]
# The vectors it gets wrong, by the rule that decides them.
FAULTY_RULES = (
    "clock goes back: fixed-time job",
    "clock goes forward: wildcard job",
    "a day field that begins with *",
    "jump of 3 h or more",
)


@pytest.mark.parametrize(("expression", "name", "after", "rule"), FAULTS)
def test_known_faults_of_croniter(expression: str, name: str, after: str, rule: str) -> None:
    start = datetime.fromisoformat(after)

    assert by_us(expression, name, start, 4) != by_croniter(expression, name, start, 4), rule


@pytest.mark.parametrize("expression", UNABLE)
def test_what_croniter_cannot_do(expression: str) -> None:
    start = datetime(2026, 1, 15, tzinfo=UTC)

    assert len(by_us(expression, "UTC", start, 4)) == 4
    with pytest.raises(CroniterError):
        by_croniter(expression, "UTC", start, 4)


@pytest.mark.parametrize(("expression", "what"), LENIENT)
def test_what_croniter_accepts_and_we_refuse(expression: str, what: str) -> None:
    assert croniter.is_valid(expression), what
    with pytest.raises(CronError):
        parse(expression)


def test_on_the_vectors_croniter_is_right_but_for_its_known_faults() -> None:
    wrong = []
    for text in (DATA / "valid.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        after = datetime.fromisoformat(line["after"])
        expected = [datetime.fromisoformat(instant) for instant in line["next"]]
        if by_croniter(line["expr"].strip(), line["tz"], after, len(expected)) != expected:
            wrong.append((line["expr"], line["why"]))

    unlisted = [case for case in wrong if not case[1].startswith(FAULTY_RULES)]
    assert [expression for expression, _ in unlisted] == ["1-1 * * * *"]
    assert len(wrong) > 218 // 10  # so it alone would not do
