"""Requests parsed with all their faults at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from reveille_runtime.errors import InvalidArgument
from reveille_runtime.validation import Violations, to_duration, to_timestamp


class Mode(StrEnum):
    RUN = "run"
    ISSUE = "issue"


MODES = {1: Mode.RUN, 2: Mode.ISSUE}
ID = "0190f0aa-0000-7000-8000-000000000001"


def test_good_values_come_out_parsed() -> None:
    v = Violations()

    assert v.uuid("id", ID) == UUID(ID)
    assert v.optional_uuid("id", "") is None
    assert v.text("name", "  daily  ", minimum=1, maximum=5) == "daily"
    assert v.text("body", " x ", strip=False) == " x "
    assert v.integer("n", 3, minimum=1, maximum=3) == 3
    assert v.duration("d", Duration(seconds=90)) == timedelta(seconds=90)
    assert v.timestamp("t", Timestamp(seconds=1)) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert v.enum("mode", 2, MODES) is Mode.ISSUE
    assert v.json_object("j", '{"a": 1}') == {"a": 1}
    assert v.json_object("j", "") == {}
    assert not v
    v.check()


@pytest.mark.parametrize(
    ("parse", "reason"),
    [
        (lambda v: v.uuid("f", ""), "FIELD_REQUIRED"),
        (lambda v: v.uuid("f", "nope"), "INVALID_ID"),
        (lambda v: v.optional_uuid("f", "nope"), "INVALID_ID"),
        (lambda v: v.text("f", "", minimum=1), "FIELD_REQUIRED"),
        (lambda v: v.text("f", "   ", minimum=1), "FIELD_REQUIRED"),
        (lambda v: v.text("f", "ab", minimum=3), "TOO_SHORT"),
        (lambda v: v.text("f", "abcd", maximum=3), "TOO_LONG"),
        (lambda v: v.text("f", "a\x00b"), "INVALID_TEXT"),
        (lambda v: v.integer("f", 4, minimum=1, maximum=3), "OUT_OF_BOUNDS"),
        (lambda v: v.duration("f", Duration(seconds=-1)), "OUT_OF_BOUNDS"),
        (lambda v: v.duration("f", Duration(seconds=10**14)), "INVALID_DURATION"),
        (lambda v: v.timestamp("f", Timestamp(seconds=10**15)), "INVALID_TIMESTAMP"),
        (lambda v: v.enum("f", 0, MODES), "INVALID_ENUM"),
        (lambda v: v.enum("f", 9, MODES), "INVALID_ENUM"),
        (lambda v: v.json_object("f", "{"), "INVALID_JSON"),
        (lambda v: v.json_object("f", "[1]"), "INVALID_JSON"),
        (lambda v: v.json_object("f", '{"a": "\\u0000"}'), "INVALID_TEXT"),
        (lambda v: v.json_object("f", '{"a": "\\ud800"}'), "INVALID_TEXT"),
        (lambda v: v.json_object("f", '{"a": 1e999}'), "INVALID_JSON"),
        (lambda v: v.json_object("f", '{"a": NaN}'), "INVALID_JSON"),
        (lambda v: v.json_object("f", '"' + "x" * 70_000 + '"'), "TOO_LONG"),
        (lambda v: v.json_object("f", "[" * 60_000), "INVALID_JSON"),
    ],
)
def test_a_bad_value_is_noted_with_its_field(
    parse: Callable[[Violations], object], reason: str
) -> None:
    v = Violations()

    parse(v)

    assert v
    with pytest.raises(InvalidArgument) as refused:
        v.check()
    assert [(each.field, each.reason) for each in refused.value.violations] == [("f", reason)]


def test_everything_wrong_is_told_at_once() -> None:
    v = Violations()
    v.uuid("agent_id", "")
    v.text("title", "", minimum=1)
    v.add("cron", "is not a cron expression", "INVALID_CRON")

    with pytest.raises(InvalidArgument) as refused:
        v.check()

    assert [each.field for each in refused.value.violations] == ["agent_id", "title", "cron"]
    assert "title: is required" in refused.value.message


def test_times_go_out_as_messages() -> None:
    assert to_timestamp(None) is None
    assert to_timestamp(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)) == Timestamp(seconds=2)
    assert to_duration(timedelta(seconds=2.5)) == Duration(seconds=2, nanos=500_000_000)
