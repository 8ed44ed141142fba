"""The example agent, run as Reveille runs it: by files and an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
AGENT = ROOT / "examples" / "agents" / "triage.py"
ISSUE = ROOT / "examples" / "github" / "issues_opened.json"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def run(tmp_path: Path, payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    given, result = tmp_path / "payload.json", tmp_path / "result.json"
    wake = {"source": "automation", "reason": "autopilot_run", "title": "Title", "prompt": "Look."}
    given.write_text(json.dumps({"wake": wake, "issue": None, "payload": {}, **payload}))
    completed = subprocess.run(
        [sys.executable, AGENT],
        env={
            "PATH": os.environ["PATH"],
            "REVEILLE_PAYLOAD_FILE": str(given),
            "REVEILLE_RESULT_FILE": str(result),
            "TRACEPARENT": TRACEPARENT,
            # Whatever the terminal of whoever started the service speaks.
            "PYTHONIOENCODING": "latin-1",
        },
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return completed.stdout, answer


def test_it_tells_of_the_issue_in_the_body(tmp_path: Path) -> None:
    body = json.loads(ISSUE.read_text(encoding="utf-8"))

    output, answer = run(tmp_path, {"payload": {"body": body}})

    assert "woken by automation because of autopilot_run\nasked to: Look.\n" in output
    assert answer["summary"] == (
        "Triaged lighthouse-crew/beacon#42 “The beacon skips a turn when the hour changes”"
        " by night-watch (bug)"
    )
    assert answer["result"]["traceparent"] == TRACEPARENT
    assert "issue_status" not in answer


def test_it_closes_the_issue_it_is_woken_for(tmp_path: Path) -> None:
    _, answer = run(tmp_path, {"issue": {"identifier": "LAMP-1", "title": "Round"}})

    assert answer["summary"] == "Triaged LAMP-1 “Round”"
    assert answer["issue_status"] == "done"


def test_without_either_it_tells_of_the_wake(tmp_path: Path) -> None:
    _, answer = run(tmp_path, {"payload": {"body": ["anything"]}})

    assert answer["summary"] == "Triaged Title"
