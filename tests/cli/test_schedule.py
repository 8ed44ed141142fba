"""`reveille schedule preview`, held against every vector; it needs no stack and no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reveille_cli.main import app

VECTORS = Path(__file__).parents[1] / "data" / "cron"


def vectors(name: str) -> list[dict[str, Any]]:
    lines = (VECTORS / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def preview(*words: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, ["schedule", "preview", *words, "-o", "json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


def test_every_valid_expression_fires_when_it_should() -> None:
    wrong = []
    for vector in vectors("valid.jsonl"):
        line = (vector["expr"], "--tz", vector["tz"], "--after", vector["after"])
        expected = {
            "expression": vector["expr"],
            "time_zone": vector["tz"],
            "next": vector["next"],
        }
        answer = preview(*line, "--count", str(len(vector["next"])))
        if answer != (0, expected):
            wrong.append((line, answer, expected))
    assert wrong == []


def test_every_invalid_expression_is_refused() -> None:
    wrong = []
    for vector in vectors("invalid.jsonl"):
        exit_code, document = preview(vector["expr"])
        if (exit_code, document.get("error", {}).get("reason")) != (2, "invalid_cron"):
            wrong.append((vector["expr"], exit_code, document))
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "reason", "field"),
    [
        (["61 * * * *"], "invalid_cron", "minute"),
        (["* * * * *", "--tz", "Local"], "invalid_timezone", "time_zone"),
        (["* * * * *", "--tz", "../etc/passwd"], "invalid_timezone", "time_zone"),
        (["* * * * *", "--count", "0"], "invalid_field", "count"),
        (["* * * * *", "--count", "101"], "invalid_field", "count"),
        (["* * * * *", "--after", "tomorrow"], "invalid_field", "after"),
        (["* * * * *", "--after", "2026-03-08T00:00:00"], "invalid_field", "after"),
        (["* * * * *", "--after", "9999-12-31T23:59:00Z"], "invalid_field", "after"),
        (["0 0 1 1 *", "--after", "9998-01-01T00:00:00Z"], "invalid_field", "after"),
        (["* * * * *", "--after", "0001-01-01T00:00:00+23:59"], "invalid_field", "after"),
    ],
)
def test_what_is_refused_names_its_field(words: list[str], reason: str, field: str) -> None:
    exit_code, document = preview(*words)

    assert exit_code == 2
    assert document["error"]["reason"] == reason
    assert document["error"]["field"] == field
    assert document["error"]["message"]


def test_the_defaults_are_five_from_now_in_utc() -> None:
    exit_code, document = preview("* * * * *")

    assert exit_code == 0
    assert document["time_zone"] == "UTC"
    assert len(document["next"]) == 5


def test_no_zone_is_utc() -> None:
    exit_code, document = preview("* * * * *", "--tz", "")

    assert exit_code == 0
    assert document["time_zone"] == "UTC"


def test_an_expression_that_never_fires_is_refused() -> None:
    exit_code, document = preview("0 0 30 2 *")

    assert (exit_code, document["error"]["reason"]) == (2, "invalid_cron")


def test_a_person_sees_both_clocks() -> None:
    line = ["0 2 * * *", "--tz", "America/New_York", "--after", "2026-03-07T08:00:00Z", "--count"]

    result = CliRunner().invoke(app, ["schedule", "preview", *line, "2"])

    assert result.stdout.splitlines() == [
        "2026-03-08T07:00:00Z  Sun 2026-03-08 03:00:00 EDT",
        "2026-03-09T06:00:00Z  Mon 2026-03-09 02:00:00 EDT",
    ]


def test_it_imports_nothing_of_a_stack() -> None:
    code = (
        "import sys; from reveille_cli.main import app; import reveille_cli.commands.schedule;"
        "print([name for name in ('grpc', 'asyncpg', 'google.protobuf', 'yaml', 'cryptography')"
        " if name in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.strip() == "[]"
