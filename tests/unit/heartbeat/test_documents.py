"""The payload file, and the names of places and executors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, RUN, WAKEUP

from reveille_heartbeat.domain.document import (
    MOST_VALUES,
    Joined,
    LeftOut,
    build,
    dump,
    dump_in_steps,
)
from reveille_heartbeat.domain.places import Executor, Place, process_of
from reveille_heartbeat.domain.values import Payload, ProcessIdentity


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", {}),
        (b'{"a": [1, "\\ud800"]}', {"body": {"a": [1, "\ud800"]}}),
        (b"plain", {"body_text": "plain"}),
        (b"[1e999]", {"body_text": "[1e999]"}),
        (b"NaN", {"body_text": "NaN"}),
        (b"\xff\x00", {"body_base64": "/wA="}),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, shown: dict[str, object]) -> None:
    document = build(
        run=RUN,
        wakeup=WAKEUP,
        prompt="Please look.",
        agent=AGENT,
        issue=ISSUE,
        payload=Payload("text/x", b"", "", {"event": "push"}),
        body=body,
        body_path="/spool/body",
        joined=[Joined(replace(WAKEUP, context={"approval": {}}), "also", Payload())],
    )
    # Written and read again: also what no text file could hold as it is.
    read = json.loads(dump(document))

    assert read["payload"] == {"content_type": "text/x", "facts": {"event": "push"}, **shown}
    assert read["wake"]["prompt"] == "Please look."
    assert read["issue"]["identifier"] == "ABC-1"
    assert read["context"]["occurrence_key"] == "webhook:1"
    assert read["trace"]["traceparent"] == RUN.agent_carrier["traceparent"]
    assert [(each["prompt"], each["notes"]) for each in read["joined"]] == [
        ("also", {"approval": {}})
    ]
    assert read["payload_file"] == "/spool/body"
    assert read["left_out"] == {"joined": 0, "comments": 0}


def built(body: bytes, **more: Any) -> dict[str, Any]:
    """Build a document of which the body counts."""
    return build(
        run=RUN,
        wakeup=WAKEUP,
        prompt="",
        agent=AGENT,
        issue=None,
        payload=Payload(),
        body=body,
        body_path="",
        **more,
    )


def shown(body: bytes) -> dict[str, Any]:
    document = built(body)
    read = json.loads(dump_in_steps(document))
    assert read == json.loads(dump(document))
    payload: dict[str, Any] = read["payload"]
    return payload


def test_a_body_of_more_values_than_are_read_at_once_is_shown_as_text() -> None:
    # The brackets begin two, and each comma one.
    most = b'[["",",,,' + b'\\"[' * 9 + b'"]' + b",1" * (MOST_VALUES - 3) + b"]"

    assert shown(most)["body"] == json.loads(most)
    assert shown(most[:-1] + b",1]")["body_text"] == most[:-1].decode() + ",1]"


def test_a_large_document_is_written_a_value_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step nothing else of the process would go on, in whatever thread that is."""
    document = {"a": [1, "\ud800", None], "b": 1.5}
    written = dump(document)

    def in_one_step(*_arguments: object) -> None:
        raise AssertionError("it is written in one step")

    monkeypatch.setattr(json.encoder, "c_make_encoder", in_one_step)
    assert dump_in_steps(document) == written


def test_what_was_read_is_written_however_deep_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written = dump({"a": {"b": []}})
    in_one_step = json.JSONEncoder.iterencode

    def too_deep(
        self: json.JSONEncoder, document: object, _one_shot: bool = False
    ) -> Iterator[str]:
        if not _one_shot:
            raise RecursionError
        return in_one_step(self, document, _one_shot)

    monkeypatch.setattr(json.JSONEncoder, "iterencode", too_deep)
    assert dump_in_steps({"a": {"b": []}}) == written


def test_a_document_that_does_not_tell_all_says_how_much_is_left_out() -> None:
    document = built(b"", left_out=LeftOut(joined=3, comments=0))

    assert document["left_out"] == {"joined": 3, "comments": 0}


def test_places_and_executors_are_read_back_from_rows() -> None:
    place = Place("boot", "4026", "spool")
    executor = Executor("host", ProcessIdentity(12, 345), "mark", place)

    assert Place.parse(str(place)) == place
    assert process_of(executor.executor_id) == ProcessIdentity(12, 345)
    assert Place.parse("elsewhere") is None
    assert process_of("elsewhere") is None
    assert process_of("a/b/c/d") is None
    assert place.shares_spool("other/9/spool")
    assert not place.shares_spool("boot/4026/other")
