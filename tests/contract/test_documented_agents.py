"""Write an agent: what the page says is in the files and settings is, and its agents run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.heartbeat.made import AGENT, COMMENT, ISSUE, RUN, WAKEUP

from reveille_heartbeat.adapters.echo import EchoAdapter
from reveille_heartbeat.adapters.process.settings import INHERITED
from reveille_heartbeat.domain.answer import FIELDS, answer_of, read_document
from reveille_heartbeat.domain.document import MOST_VALUES, Joined, build, dump
from reveille_heartbeat.domain.states import IssueState
from reveille_heartbeat.domain.values import Issue, Payload

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/write-an-agent.md").read_text("utf-8")
_AGENT = re.compile(r"^```(python|sh)\n(#!.*?)^```$", re.DOTALL | re.MULTILINE)
AGENTS = _AGENT.findall(PAGE)
INTERPRETERS = {"python": sys.executable, "sh": "/bin/sh"}


def document(issue: Issue | None) -> dict[str, Any]:
    return build(
        run=RUN,
        wakeup=WAKEUP,
        prompt="Please look.",
        agent=AGENT,
        issue=issue,
        payload=Payload("application/json", b"{}", "delivery", {"event": "push"}),
        body=b"{}",
        body_path="/spool/body",
        joined=[Joined(WAKEUP, "also", Payload())],
        comments=[COMMENT],
    )


def table_after(words: str) -> dict[str, str]:
    """The rows of the first table after some words, by the names in their first cell."""
    lines = PAGE[PAGE.index(words) :].split("\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    rows = (line.strip("|").split(" | ", maxsplit=1) for line in lines)
    return {name: text for names, text in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_payload_file_has_the_keys_of_the_page() -> None:
    written, told = document(ISSUE), table_after("**The payload file**")

    assert set(told) == set(written)
    for key in ("agent", "wake", "issue", "context", "trace"):
        assert [inner for inner in written[key] if f"`{inner}`" not in told[key]] == []
    assert [key for key in written["joined"][0] if f"`{key}`" not in told["joined"]] == []
    assert [key for key in written["comments"][0] if f"`{key}`" not in told["comments"]] == []
    assert [key for key in written["payload"] if f"`{key}`" not in told["payload"]] == []
    assert f"at most {MOST_VALUES:,} values" in told["payload"]


def test_the_result_file_has_the_keys_of_the_page() -> None:
    told = table_after("**The result file**")

    assert set(told) == set(FIELDS)
    assert [state for state in IssueState if f"`{state}`" not in told["issue_status"]] == []


def test_the_environment_is_the_one_of_the_page() -> None:
    told = table_after("**The environment**")

    assert [name for name in INHERITED if name not in told] == []


def test_echo_has_the_settings_of_the_page() -> None:
    told = table_after("## Without a program")

    assert set(told) == {"summary", "issue_status", "fail"}
    problems = EchoAdapter().check(dict.fromkeys((*told, "unheard_of")))
    assert [each.field for each in problems if "not a setting" in each.description] == [
        "unheard_of"
    ]


def test_there_is_an_agent_in_each_language() -> None:
    assert sorted(language for language, _ in AGENTS) == ["python", "sh"]


@pytest.mark.parametrize("issue", [ISSUE, None], ids=["issue", "no_issue"])
@pytest.mark.parametrize(("language", "text"), AGENTS, ids=[language for language, _ in AGENTS])
def test_the_agents_of_the_page_run(
    tmp_path: Path, language: str, text: str, issue: Issue | None
) -> None:
    agent, payload, result = (tmp_path / name for name in ("agent", "payload", "result"))
    agent.write_text(text, encoding="utf-8")
    payload.write_bytes(dump(document(issue)))

    done = subprocess.run(
        [INTERPRETERS[language], str(agent)],
        env={
            "PATH": os.environ["PATH"],
            "REVEILLE_PAYLOAD_FILE": str(payload),
            "REVEILLE_RESULT_FILE": str(result),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
    answer = answer_of(read_document(result.read_bytes()))
    assert answer.summary == json.loads(result.read_text("utf-8"))["summary"]
    assert issue is None or answer.issue_status is IssueState.DONE
