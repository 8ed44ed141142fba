"""Following an attempt, repeating one: what is shown, and how the command ends."""

from __future__ import annotations

import json

import grpc
import pytest
from tests.cli.conftest import Answer, Desk

from reveille.common.v1 import reason_pb2
from reveille.heartbeat.v1 import run_pb2
from reveille_cli.apis import AGENT_RUNS
from reveille_runtime.errors import NotFound, ResourceExhausted


def moved(state: run_pb2.RunState.ValueType, progress: str = "") -> run_pb2.WatchRunResponse:
    run = run_pb2.HeartbeatRun(run_id="r1", state=state, progress=progress)
    run.create_time.FromJsonString("2026-11-29T09:00:00Z")
    return run_pb2.WatchRunResponse(run=run)


def happened(seq: int, kind: str, message: str = "") -> run_pb2.WatchRunResponse:
    event = run_pb2.RunEvent(seq=seq, type=kind, message=message, facts_json="{}")
    event.create_time.FromJsonString("2026-11-29T09:00:01Z")
    return run_pb2.WatchRunResponse(event=event)


def said(offset: int, data: bytes, stderr: bool = False) -> run_pb2.WatchRunResponse:
    stream = run_pb2.LOG_STREAM_STDERR if stderr else run_pb2.LOG_STREAM_STDOUT
    return run_pb2.WatchRunResponse(
        log=run_pb2.RunLogChunk(stream=stream, offset=offset, data=data)
    )


END = run_pb2.WatchRunResponse(end=True)


def test_an_attempt_is_followed_to_its_end_line_by_line(desk: Desk) -> None:
    pieces = [
        moved(run_pb2.RUN_STATE_RUNNING),
        happened(1, "run.claimed", "by here"),
        said(0, b"one\ntw"),
        said(0, b"oh\x1b[2J", stderr=True),
        said(6, b"o\n"),
        moved(run_pb2.RUN_STATE_RUNNING, progress="testing"),
        moved(run_pb2.RUN_STATE_SUCCEEDED),
        END,
    ]
    outcome = desk.run(
        "agent-runs", "watch", "r1", answers=[Answer(AGENT_RUNS, "WatchRun", pieces)]
    )

    assert outcome.exit_code == 0
    assert outcome.out.splitlines() == [
        "2026-11-29T09:00:00Z  running",
        "2026-11-29T09:00:01Z  run.claimed  by here",
        "stdout | one",
        "stdout | two",
        "2026-11-29T09:00:00Z  running  testing",
        "2026-11-29T09:00:00Z  succeeded",
        "stderr | oh\\x1b[2J",
    ]
    assert not outcome.request.without_log


def test_a_stream_that_breaks_is_taken_up_where_it_was(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_cli.nouns.agent_runs.POLL", 0.0)
    monkeypatch.setattr("reveille_cli.patience.FIRST_PAUSE", 0.0)
    slow = ResourceExhausted("OVERLOADED", "too slow", retry_after=1.0)
    rest = [said(2, b"z", stderr=True), moved(run_pb2.RUN_STATE_FAILED), END]
    outcome = desk.run(
        "agent-runs",
        "watch",
        "r1",
        "-o",
        "json",
        answers=[
            Answer(AGENT_RUNS, "WatchRun", [happened(7, "run.claimed"), said(10, b"abc")]),
            Answer(AGENT_RUNS, "WatchRun", slow),
            Answer(AGENT_RUNS, "WatchRun", grpc.StatusCode.UNAVAILABLE),
            Answer(AGENT_RUNS, "WatchRun", rest),
        ],
    )
    assert outcome.exit_code == 1
    assert [
        (each.after_event, each.stdout_offset, each.stderr_offset) for each in outcome.requests
    ] == [(0, 0, 0), (7, 13, 0), (7, 13, 0), (7, 13, 0)]
    documents = [json.loads(line) for line in outcome.out.splitlines()]
    assert [next(key for key, value in each.items() if value) for each in documents] == [
        "event",
        "log",
        "log",
        "run",
        "end",
    ]


def test_what_will_never_come_is_not_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveille_cli.patience.LIMIT", 0.0)
    gone = [Answer(AGENT_RUNS, "WatchRun", NotFound("NOT_FOUND"))]
    assert desk.run("agent-runs", "watch", "r1", answers=gone).exit_code == 3
    away = Answer(AGENT_RUNS, "WatchRun", grpc.StatusCode.UNAVAILABLE)
    assert desk.run("agent-runs", "watch", "r1", answers=[away]).exit_code == 6
    left = [Answer(AGENT_RUNS, "WatchRun", [happened(7, "run.claimed")]), away]
    assert desk.run("agent-runs", "watch", "r1", answers=left).exit_code == 6


def test_output_is_followed_through_a_restart(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reveille_cli.patience.FIRST_PAUSE", 0.0)
    outcome = desk.run(
        "agent-runs",
        "logs",
        "r1",
        "--follow",
        answers=[
            Answer(AGENT_RUNS, "ReadRunLog", run_pb2.ReadRunLogResponse(chunk=b"a", next_offset=1)),
            Answer(AGENT_RUNS, "ReadRunLog", grpc.StatusCode.UNAVAILABLE),
            Answer(
                AGENT_RUNS,
                "ReadRunLog",
                run_pb2.ReadRunLogResponse(chunk=b"b", next_offset=2, complete=True),
            ),
        ],
    )
    assert (outcome.exit_code, outcome.out) == (0, "ab")
    assert [each.offset for each in outcome.requests] == [0, 1, 1]


def test_a_repeat_that_a_rule_forbids_is_a_conflict(desk: Desk) -> None:
    reply = run_pb2.RetryRunResponse(
        outcome=run_pb2.RETRY_OUTCOME_SUPPRESSED,
        reason=reason_pb2.REASON_ISSUE_TREE_HELD,
        message="ABC-1 and all below it are held",
    )
    outcome = desk.run("agent-runs", "retry", "r1", answers=[Answer(AGENT_RUNS, "RetryRun", reply)])

    assert outcome.exit_code == 5
    assert "not repeated: ABC-1 and all below it are held (issue_tree_held)" in outcome.err


def test_a_repeat_is_shown(desk: Desk) -> None:
    reply = run_pb2.RetryRunResponse(
        outcome=run_pb2.RETRY_OUTCOME_PROMOTED,
        run=run_pb2.HeartbeatRun(run_id="r2"),
        wakeup_id="w1",
    )
    outcome = desk.run(
        "agent-runs",
        "retry",
        "r1",
        "-o",
        "json",
        answers=[Answer(AGENT_RUNS, "RetryRun", reply)],
    )
    assert (outcome.exit_code, outcome.json["outcome"]) == (0, "promoted")
    assert outcome.json["run"]["run_id"] == "r2"
