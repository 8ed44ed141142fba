"""Every line of the vector files: what fires when, walked both ways, and what is refused."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from reveille_cron import CronError, Reason, Schedule, parse, zone

DATA = Path(__file__).parents[2] / "data" / "cron"


def lines(name: str) -> list[object]:
    texts = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [
        pytest.param(json.loads(text), id=f"{name}:{number}")
        for number, text in enumerate(texts, start=1)
    ]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_the_files_are_whole() -> None:
    assert [len(lines(name)) for name in ("valid.jsonl", "invalid.jsonl", "own.jsonl")] == [
        218,
        138,
        73,
    ]


@pytest.mark.parametrize("line", lines("valid.jsonl") + lines("own.jsonl"))
def test_fires_when_the_vector_says(line: dict[str, str]) -> None:
    schedule = Schedule(parse(line["expr"]), zone(line["tz"]))
    expected = [instant(text) for text in line["next"]]

    assert schedule.upcoming(instant(line["after"]), len(expected)) == expected


@pytest.mark.parametrize("line", lines("valid.jsonl") + lines("own.jsonl"))
def test_the_way_back_meets_the_same_instants(line: dict[str, str]) -> None:
    schedule = Schedule(parse(line["expr"]), zone(line["tz"]))
    expected = [instant(text) for text in line["next"]]
    back = []
    at: datetime | None = schedule.next(expected[-1])
    for _ in expected:
        assert at is not None
        at = schedule.previous(at)
        back.append(at)

    assert back[::-1] == expected
    before_first = schedule.previous(expected[0])
    assert before_first is None or before_first <= instant(line["after"])


@pytest.mark.parametrize("line", lines("invalid.jsonl"))
def test_refuses_what_the_vector_says(line: dict[str, str]) -> None:
    with pytest.raises(CronError) as refused:
        parse(line["expr"])

    error = refused.value
    assert error.reason is Reason.INVALID_CRON
    assert error.field
    assert error.message
    assert error.hint
    assert str(error).isascii()
    assert len(str(error)) < 300
