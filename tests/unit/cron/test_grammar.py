"""The grammar: canonical spellings, refusals with their field and their hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reveille_cron import CronError, parse

CANONICAL = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    (" @hourly\t", "0 * * * *"),
    ("  00\t007  ?  JAN-dec/1  sun,MON ", "0 7 * 1-12 0,1"),
    ("*/60 */24 */31 */12 */7", "*/60 */24 */31 */12 */7"),
    ("*/1 * * * *", "* * * * *"),
    ("5/15 22/1 20/20 * *", "5-59/15 22-23 20 * *"),
    ("1-1 5-10/20 * * 7", "1 5 * * 0"),
    ("1,1,2 * * * 0,7,SUN", "1,2 * * * 0"),
    ("0 0 l,15 * ?", "0 0 L,15 * *"),
    ("0 0 * * fri-SUN", "0 0 * * 5-7"),
    ("0 0 * * SUN-SUN", "0 0 * * 0"),
    ("0 0 * * 7-7", "0 0 * * 0"),
    ("0 0 * * 7#1,Fri#5", "0 0 * * 0#1,5#5"),
]


@pytest.mark.parametrize(("written", "canonical"), CANONICAL)
def test_there_is_one_canonical_spelling(written: str, canonical: str) -> None:
    assert parse(written).text == canonical
    assert parse(canonical) == parse(written)
    assert str(parse(written)) == canonical


def test_equal_expressions_are_one_key() -> None:
    assert len({parse("0 9 * * MON-FRI"), parse("0  9 * * 1-5"), parse("0 9 ? * mon-fri")}) == 1


@pytest.mark.parametrize(
    ("expression", "wildcard"),
    [
        ("* 2 * * *", True),
        ("0 * * * *", True),
        ("*/20 2 * * *", True),
        ("0 */2 * * *", True),
        ("*,5 2 * * *", True),
        ("0-59 2 * * *", False),
        ("5,* 2 * * *", False),
        ("0/1 0-23 * * *", False),
        ("@daily", False),
        ("@hourly", True),
    ],
)
def test_a_wildcard_job_is_told_by_its_text(expression: str, wildcard: bool) -> None:
    assert parse(expression).wildcard is wildcard


REFUSED = [
    ("", "expression", "write five fields"),
    ("* * * *", "expression", "write five fields"),
    ("0 0 12 * * ?", "expression", "no field for seconds or years"),
    ("0 0 12 * * ? 2026", "expression", "no field for seconds or years"),
    ("@reboot", "expression", "@daily"),
    ("@every 5m", "expression", "write a step as in */5 * * * *"),
    ("@Daily", "expression", "@daily"),
    ("@daily *", "expression", "@daily"),
    ("@daily * * * *", "expression", "@daily"),
    ("TZ=Asia/Tokyo 0 9 * * *", "expression", "time zone beside the expression"),
    ("CRON_TZ=UTC 0 9 * *", "expression", "time zone beside the expression"),
    ("0 9 * * *\n", "day_of_week", "ASCII"),
    ("0\N{NO-BREAK SPACE}9 * * *", "expression", "write five fields"),
    ("0 \N{FULLWIDTH DIGIT NINE} * * *", "hour", "ASCII"),
    ("* " * 128 + "*", "expression", "at most 256"),
    ("60 * * * *", "minute", "use 0-59"),
    ("* 24 * * *", "hour", "use 0-23"),
    ("* * 0 * *", "day_of_month", "use 1-31"),
    ("* * * 0 *", "month", "use 1-12 or JAN-DEC"),
    ("* * * * 8", "day_of_week", "use 0-6 (or 7 for 0) or SUN-SAT"),
    ("*/61 * * * *", "minute", "step of 1 to 60"),
    ("* */25 * * *", "hour", "step of 1 to 24"),
    ("* * */32 * *", "day_of_month", "step of 1 to 31"),
    ("* * * */13 *", "month", "step of 1 to 12"),
    ("* * * * */8", "day_of_week", "step of 1 to 7"),
    ("5/61 * * * *", "minute", "step of 1 to 60"),
    ("5-10/61 * * * *", "minute", "step of 1 to 60"),
    ("*/0 * * * *", "minute", "step of 1 to 60"),
    ("5-1 * * * *", "minute", "write 5-59,0-1"),
    ("0 22-4/2 * * *", "hour", "write 22,0,2,4"),
    ("0 0 28-2 * *", "day_of_month", "write 28-31,1-2"),
    ("0 0 * NOV-FEB *", "month", "write 11-12,1-2"),
    ("0 0 * * FRI-MON", "day_of_week", "write 5-6,0-1"),
    ("0 0 * * 7-2", "day_of_week", "write 0-2"),
    ("0 0 * * 7/2", "day_of_week", "start at 0"),
    ("? * * * *", "minute", "write '*'"),
    ("* ? * * *", "hour", "write '*'"),
    ("* * * ? *", "month", "write '*'"),
    ("* * ?/2 * *", "day_of_month", "'?' stands alone"),
    ("* * ?,5 * *", "day_of_month", "'?' stands alone"),
    ("H * * * *", "minute", "use 0-59"),
    ("* H(0-7) * * *", "hour", "use 0-23"),
    ("R * * * *", "minute", "use 0-59"),
    ("~ * * * *", "minute", "use 0-59"),
    ("* 1~5 * * *", "hour", "use 0-23"),
    ("* * 15W * *", "day_of_month", "L for the last day"),
    ("* * LW * *", "day_of_month", "L for the last day"),
    ("* * L-3 * *", "day_of_month", "write L alone"),
    ("* * L/2 * *", "day_of_month", "write L alone"),
    ("* * 1-L * *", "day_of_month", "write L alone"),
    ("* * * L *", "month", "only in day_of_month"),
    ("* * * * L", "day_of_week", "only in day_of_month"),
    ("* * * * 5L", "day_of_week", "FRI#4"),
    ("* * * * 5#6", "day_of_week", "n from 1 to 5"),
    ("* * * * 5#0", "day_of_week", "n from 1 to 5"),
    ("* * * * 5#", "day_of_week", "n from 1 to 5"),
    ("* * * * #2", "day_of_week", "nothing before '#'"),
    ("* * * * 5#1/2", "day_of_week", "n from 1 to 5"),
    ("* * * * 1-5#1", "day_of_week", "one weekday before"),
    ("* * * * *#1", "day_of_week", "write * alone"),
    ("* * 5#1 * *", "day_of_month", "day_of_week, as in MON#2"),
    ("* * * * MONDAY", "day_of_week", "write MON"),
    ("* * * sept *", "month", "write SEP"),
    ("* * * * */MON", "day_of_week", "step of 1 to 7"),
    ("1,,2 * * * *", "minute", "single commas"),
    ("*5 * * * *", "minute", "write * alone"),
    ("*-5 * * * *", "minute", "write * alone"),
    ("** * * * *", "minute", "write * alone"),
    ("5- * * * *", "minute", "without an end"),
    ("-5 * * * *", "minute", "nothing before '-'"),
    ("/5 * * * *", "minute", "nothing before '/'"),
    ("0 0 30 2 *", "day_of_month", "a day that the months have"),
    ("0 0 31 4,6,9,11 *", "day_of_month", "a day that the months have"),
    ("0 0 30,31 2 */7", "day_of_month", "a day that the months have"),
]


@pytest.mark.parametrize(("expression", "field", "tells"), REFUSED)
def test_a_refusal_names_the_field_and_the_accepted_way(
    expression: str, field: str, tells: str
) -> None:
    with pytest.raises(CronError) as refused:
        parse(expression)

    assert refused.value.reason == "invalid_cron"
    assert refused.value.field == field
    assert tells in f"{refused.value.message}; {refused.value.hint}"


@pytest.mark.parametrize("length", [256, 257])
def test_the_length_is_limited_to_256(length: int) -> None:
    expression = "0 0 1 1 *".ljust(length)
    if length <= 256:
        assert parse(expression).text == "0 0 1 1 *"
    else:
        with pytest.raises(CronError, match="at most 256"):
            parse(expression)


@pytest.mark.parametrize(
    "expression",
    ["0 0 29 2 *", "0 0 29 2 */7", "0 0 31 2 0", "0 0 * 2 1#5", "0 0 30 2 1#5", "0 0 L 2 */3"],
)
def test_what_fires_seldom_is_accepted(expression: str) -> None:
    assert parse(expression)


@given(st.one_of(st.text(max_size=40), st.text("0123456789*/,-#?LHWMONJAN~ \t", max_size=40)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expression = parse(text)
    except CronError:
        return
    assert parse(expression.text) == expression
    assert parse(expression.text).text == expression.text
