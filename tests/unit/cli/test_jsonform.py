"""Messages as plain values."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from reveille.autopilot.v1 import autopilot_pb2, run_pb2
from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import agent_pb2
from reveille.heartbeat.v1 import run_pb2 as heartbeat
from reveille_cli.jsonform import enum_words, plain


def test_enums_lose_their_prefix_and_unspecified_is_null() -> None:
    run = run_pb2.AutopilotRun(state=run_pb2.RUN_STATE_ISSUE_CREATED)

    shown = plain(run)

    assert shown["state"] == "issue_created"
    assert shown["reason"] is None


def test_a_value_of_a_newer_release_keeps_its_number() -> None:
    # Field 18 of AutopilotRun, as a release that knows the reason 999 would send it.
    run = run_pb2.AutopilotRun.FromString(b"\x90\x01\xe7\x07")

    assert plain(run)["reason"] == "reason_999"


def test_results_are_json() -> None:
    assert plain(run_pb2.AutopilotRun(result=b'{"a": [1]}'))["result"] == {"a": [1]}
    assert plain(run_pb2.AutopilotRun())["result"] is None
    assert plain(run_pb2.AutopilotRun(result=b"half {"))["result"] == "half {"


def test_what_is_absent_is_null() -> None:
    never_seen = plain(heartbeat.HeartbeatRun())
    zero = plain(heartbeat.HeartbeatRun(exit_code=0))

    assert (never_seen["exit_code"], never_seen["start_time"]) == (None, None)
    assert zero["exit_code"] == 0


def test_deeper_messages_and_structs() -> None:
    trigger = autopilot_pb2.Trigger()
    trigger.webhook.event_filters.add(event="issues", actions=["opened"])
    agent = agent_pb2.Agent()
    agent.adapter_config.update({"command": ["a"], "n": 1})
    agent.run_timeout.FromSeconds(3600)

    shown = plain(trigger)

    assert shown["schedule"] is None
    assert shown["webhook"]["event_filters"] == [{"event": "issues", "actions": ["opened"]}]
    assert plain(agent)["adapter_config"] == {"command": ["a"], "n": 1}
    assert plain(agent)["run_timeout"] == "3600s"


def test_every_enum_has_its_prefix() -> None:
    message: type[Message] = run_pb2.AutopilotRun
    enums: list[Any] = [field.enum_type for field in message.DESCRIPTOR.fields if field.enum_type]
    words = [word for enum in enums for word in enum_words(enum)]

    assert "run_only" in words
    assert enum_words(reason_pb2.Reason.DESCRIPTOR)["too_late"] == reason_pb2.REASON_TOO_LATE
    assert all("unspecified" not in word and word == word.lower() for word in words)
