"""What goes wrong: exit codes, reasons, and where they are written."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from reveille_cli.apis import AGENTS, AUTOPILOTS
from reveille_cli.stack.record import own_version
from reveille_runtime.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)

from .conftest import Answer, Desk

W = "0197f3a0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (InvalidArgument.of("run_id", "is no id", "INVALID_FIELD"), 2),
        (OutOfRange("INVALID_PAGE_TOKEN"), 2),
        (NotFound("NOT_FOUND"), 3),
        (PermissionDenied("ROLE_TOO_WEAK"), 4),
        (Unauthenticated("TOKEN_EXPIRED"), 4),
        (AlreadyExists("ALREADY_EXISTS"), 5),
        (FailedPrecondition("WRONG_STATE"), 5),
        (Aborted("ETAG_MISMATCH"), 5),
        (Unavailable("DATABASE_UNAVAILABLE"), 6),
        (ResourceExhausted("OVERLOADED"), 6),
        (DomainError("INTERNAL"), 1),
    ],
)
def test_a_refusal_has_its_exit_code(desk: Desk, error: DomainError, exit_code: int) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", error)]

    outcome = desk.run("runs", "get", "r1", "-o", "json", answers=answers)

    assert outcome.exit_code == exit_code
    assert outcome.json["error"]["reason"] == error.reason.lower()
    assert outcome.json["error"]["message"] == error.message
    assert outcome.err == ""


def test_every_violation_is_named(desk: Desk) -> None:
    error = InvalidArgument(
        [FieldViolation("a", "is bad", "INVALID_CRON"), FieldViolation("b", "is worse")],
        metadata={"k": "v"},
    )
    answers = [Answer(AUTOPILOTS, "GetRun", error)]

    as_json = desk.run("runs", "get", "r1", "-o", "json", answers=answers)
    as_table = desk.run("runs", "get", "r1", answers=answers)

    assert as_json.json == {
        "error": {
            "reason": "invalid_cron",
            "message": "a: is bad; b: is worse",
            "violations": [
                {"field": "a", "description": "is bad", "reason": "invalid_cron"},
                {"field": "b", "description": "is worse", "reason": ""},
            ],
            "metadata": {"k": "v"},
        }
    }
    assert as_table.out == ""
    assert as_table.err.splitlines() == [
        "error: 2 fields were refused (invalid_cron)",
        "  a: is bad",
        "  b: is worse",
    ]


def test_one_violation_is_the_field(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", InvalidArgument.of("run_id", "is no id"))]

    outcome = desk.run("runs", "get", "r1", "-o", "json", answers=answers)

    assert outcome.json["error"]["field"] == "run_id"


def test_a_service_that_is_away(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", grpc.StatusCode.UNAVAILABLE)]

    outcome = desk.run("runs", "get", "r1", answers=answers)

    assert outcome.exit_code == 6
    assert outcome.err.splitlines() == [
        "error: autopilot does not answer at autopilot (service_unreachable)",
        "`reveille status` tells whether it runs",
    ]


def test_a_call_has_a_deadline(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", grpc.StatusCode.DEADLINE_EXCEEDED)]

    outcome = desk.run("runs", "get", "r1", "-o", "json", answers=answers)

    assert outcome.exit_code == 6
    assert outcome.json["error"] == {
        "reason": "deadline_exceeded",
        "message": "autopilot did not answer within 30 s",
    }


def test_no_stack(desk: Desk) -> None:
    desk.environment = {}

    outcome = desk.run("runs", "get", "r1")

    assert outcome.exit_code == 6
    assert outcome.err.splitlines()[0].startswith(f"error: no stack runs on {desk.data_dir}")
    assert outcome.err.splitlines()[1].startswith("start one with `reveille up`")


def test_no_token(desk: Desk) -> None:
    del desk.environment["REVEILLE_TOKEN"]

    outcome = desk.run("runs", "get", "r1", "-o", "json")

    assert outcome.exit_code == 4
    assert outcome.json["error"]["reason"] == "token_missing"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (["agents", "create", "x", "-w", W], "adapter"),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--adapter-config", "[1]"], None),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--adapter-config", "{"], None),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--command", "'"], "command"),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--command", " "], "command"),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--env", "A"], "env"),
        (["agents", "create", "x", "-w", W, "--adapter", "p", "--run-timeout", "1x"], None),
        (["triggers", "secrets", "add", "t", "--signing-secret-env", "NOT_SET_HERE"], None),
        (["triggers", "secrets", "add", "t", "--expires", "tomorrow"], "expires"),
        (["triggers", "secrets", "add", "t", "--expires", "2026-01-01"], "expires"),
        (["autopilots", "run", W, "--payload", "1", "--payload-file", "x"], "payload"),
        (["autopilots", "run", W, "--payload-file", "/no/such/file"], "payload"),
        (["autopilots", "run", W, "--payload", '{"x'], "payload"),
        (["autopilots", "run", W, "--payload", "NaN"], "payload"),
        (
            ["autopilots", "run", W, "--payload", "x", "--content-type", "application/x+json; a=b"],
            "payload",
        ),
        (["runs", "wait", "r", "--timeout", "soon"], "timeout"),
    ],
)
def test_input_is_refused_before_anything_is_asked(
    desk: Desk, line: list[str], field: str | None
) -> None:
    outcome = desk.run(*line, "-o", "json")

    assert outcome.exit_code == 2
    assert outcome.json["error"]["reason"] == "invalid_field"
    if field is not None:
        assert outcome.json["error"]["field"] == field


@pytest.mark.parametrize(
    "line",
    [
        ["runs", "list", "--state", "walking"],
        ["runs", "get"],
        ["runs", "get", "r1", "--colour"],
        ["runs", "fly"],
        ["fly"],
        ["issues", "move", W, "away"],
    ],
)
@pytest.mark.parametrize("spelling", [["-o", "json"], ["-ojson"], ["--output=json"]])
def test_a_mistyped_line_is_refused_in_json_too(
    desk: Desk, line: list[str], spelling: list[str]
) -> None:
    outcome = desk.run(*line, *spelling)

    assert outcome.exit_code == 2
    assert outcome.json["error"]["reason"] == "invalid_usage"
    assert outcome.err == ""


def test_a_mistyped_line_is_explained_on_stderr_as_any_refusal(desk: Desk) -> None:
    outcome = desk.run("runs", "get")

    assert outcome.exit_code == 2
    assert outcome.out == ""
    said, hint = outcome.err.splitlines()
    assert said == "error: Missing argument 'run_id'. (invalid_usage)"
    assert hint.endswith("runs get --help` tells how it is used")


def test_bytes_that_are_no_text_are_refused(desk: Desk) -> None:
    outcome = desk.run("runs", "get", "\udcff", "-o", "json")

    assert outcome.exit_code == 2
    assert outcome.json["error"]["reason"] == "invalid_usage"


def test_a_noun_alone_shows_its_help(desk: Desk) -> None:
    outcome = desk.run("runs")

    assert outcome.exit_code == 2
    assert "runs [OPTIONS] COMMAND" in outcome.out
    assert "error" not in outcome.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("runs list", ["pending", "issue_created", "cancelled"]),
        ("issues move", ["backlog", "in_progress", "cancelled"]),
    ],
)
def test_help_breaks_choices_between_words(desk: Desk, command: str, words: list[str]) -> None:
    desk.environment["COLUMNS"] = "60"

    outcome = desk.run(*command.split(), "--help")

    assert outcome.exit_code == 0
    assert [word for word in words if word not in outcome.out] == []


def test_a_violation_speaks_of_the_option_and_says_it_once(desk: Desk) -> None:
    error = InvalidArgument.of(
        "schedule.time_zone", "time_zone: 'X' is not a time zone", "INVALID_TIMEZONE"
    )
    answers = [Answer(AUTOPILOTS, "CreateTrigger", error)]
    line = ("triggers", "create-schedule", W, "* * * * *", "--tz", "X")

    as_table = desk.run(*line, answers=answers)
    as_json = desk.run(*line, "-o", "json", answers=answers)

    assert as_table.err == "error: tz: 'X' is not a time zone (invalid_timezone)\n"
    assert as_json.json["error"]["field"] == "schedule.time_zone"
    assert as_json.json["error"]["message"] == "schedule.time_zone: 'X' is not a time zone"


def test_an_id_that_is_none_tells_where_ids_are(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", InvalidArgument.of("run_id", "is no id"))]

    outcome = desk.run("runs", "get", "zzz", answers=answers)

    assert outcome.err.splitlines() == [
        "error: run_id: is no id (invalid_field)",
        "see `reveille runs list`",
    ]


def test_a_broken_endpoints_file_is_no_stack(desk: Desk, tmp_path: Path) -> None:
    desk.environment = {}
    desk.data_dir.mkdir()
    (desk.data_dir / "endpoints.json").write_text("{")

    assert desk.run("runs", "get", "r1").exit_code == 6


def test_a_refused_setting_is_called_as_the_option_that_gives_it(desk: Desk) -> None:
    refusal = InvalidArgument.of("adapter_config.command", "must be a list of texts")

    outcome = desk.run(
        *("agents", "create", "a", "--adapter", "process", "-w", W),
        answers=[Answer(AGENTS, "CreateAgent", refusal)],
    )

    assert outcome.err.startswith("error: command: must be a list of texts (")


def test_an_etag_is_no_change(desk: Desk) -> None:
    outcome = desk.run("agents", "update", W, "--etag", "1")

    assert outcome.exit_code == 2
    assert "--run-timeout" in outcome.err
    assert "--etag" not in outcome.err


def test_what_lies_within_an_option_is_called_by_it(desk: Desk) -> None:
    refusal = InvalidArgument(
        [FieldViolation("webhook.options.generic", "is not for it"), FieldViolation("x", "is new")]
    )
    update = ("triggers", "update", W, "--etag", "1", "--options", "{}")
    create = ("triggers", "create-webhook", W, "--provider", "github", "--options", "{}")

    for words, rpc in ((update, "UpdateTrigger"), (create, "CreateTrigger")):
        outcome = desk.run(*words, answers=[Answer(AUTOPILOTS, rpc, refusal)])

        assert outcome.err.splitlines()[1:] == ["  options.generic: is not for it", "  x: is new"]


def test_an_option_of_a_hook_that_is_none_is_told_with_those_that_are(desk: Desk) -> None:
    create = ("triggers", "create-webhook", W, "--provider", "github", "--options")

    outcome = desk.run(*create, '{"generic": {"salt": 1}}')

    assert outcome.exit_code == 2
    assert outcome.err.startswith("error: options.generic: there is no 'salt'; there are header, ")


def test_the_version_is_told_without_a_stack(desk: Desk) -> None:
    outcome = desk.run("--version")

    assert (outcome.exit_code, outcome.out) == (0, f"reveille {own_version()}\n")
