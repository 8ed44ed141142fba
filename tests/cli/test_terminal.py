"""Stored text is shown and never obeyed: by the terminal, by rich, or by whoever reads a line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest
from rich.text import Text

from reveille.autopilot.v1 import autopilot_service_pb2 as autopilot
from reveille.autopilot.v1 import run_pb2
from reveille.explain.v1 import explain_service_pb2 as pb
from reveille.heartbeat.v1 import run_pb2 as heartbeat
from reveille_cli.apis import AGENT_RUNS, AUTOPILOTS, Service, explain_api
from reveille_cli.printer import table_of
from reveille_cli.terminal import draw, json_line, pour, visible
from reveille_runtime.errors import FailedPrecondition

from .conftest import Answer, Desk

EVIL = "\x1b]0;owned\x07\x1b[31m \x9b2J \x7f \u202etxt.exe\u2066 [red]a[/red] :boom:"
SHOWN = (
    r"\x1b]0;owned\x07\x1b[31m \x9b2J \x7f \u202etxt.exe\u2066 [red]a[/red] :boom:"  # as it reads
)
FORBIDDEN = set(EVIL) - set(map(chr, range(0x20, 0x7F)))


class Terminal(io.TextIOWrapper):
    """A stdout that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    def seen(self) -> str:
        self.flush()
        self.seek(0)
        return self.read()


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Take the place of stdout; not as a fixture, since pytest sets stdout anew after those."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


def a_run() -> run_pb2.AutopilotRun:
    return run_pb2.AutopilotRun(run_id="r1", title=EVIL, message=f"one\n{EVIL}")


def test_a_list(desk: Desk) -> None:
    reply = autopilot.ListRunsResponse(runs=[a_run()])
    workspace = "0197f3a0-0000-7000-8000-000000000001"

    outcome = desk.run(
        "runs", "list", "-w", workspace, answers=[Answer(AUTOPILOTS, "ListRuns", reply)]
    )

    assert SHOWN in outcome.out
    assert not FORBIDDEN & set(outcome.out)


def test_a_title_of_two_lines_stays_in_its_row(desk: Desk) -> None:
    reply = autopilot.ListRunsResponse(runs=[run_pb2.AutopilotRun(run_id="r1", title="a\nb")])
    workspace = "0197f3a0-0000-7000-8000-000000000001"

    outcome = desk.run(
        "runs", "list", "-w", workspace, answers=[Answer(AUTOPILOTS, "ListRuns", reply)]
    )

    assert len(outcome.out.splitlines()) == 2
    assert r"a\nb" in outcome.out


def test_one_thing(desk: Desk) -> None:
    reply = autopilot.GetRunResponse(run=a_run())

    outcome = desk.run("runs", "get", "r1", answers=[Answer(AUTOPILOTS, "GetRun", reply)])

    assert f"message  one\n         {SHOWN}\n" in outcome.out
    assert not FORBIDDEN & set(outcome.out)


def test_what_why_says(desk: Desk) -> None:
    finding = pb.Finding(subject=EVIL, subject_id="r1", state=EVIL, text=EVIL, command=EVIL)
    finding.rows.add(table=EVIL, id="r1")
    told = [pb.ExplainResponse(findings=[finding]), *[pb.ExplainResponse()] * 3]
    answers = [
        Answer(explain_api(service), "Explain", reply)
        for service, reply in zip(Service, told, strict=True)
    ]

    outcome = desk.run("why", "r1", answers=answers)

    assert outcome.exit_code == 0
    assert outcome.out.count(SHOWN) == 5
    assert not FORBIDDEN & set(outcome.out)


def test_an_error(desk: Desk) -> None:
    answers = [Answer(AUTOPILOTS, "GetRun", FailedPrecondition("WRONG_STATE", EVIL))]

    outcome = desk.run("runs", "get", "r1", answers=answers)

    assert SHOWN in outcome.err
    assert not FORBIDDEN & set(outcome.err)


def test_json_keeps_the_value_and_escapes_what_steers() -> None:
    line = json_line({"title": EVIL, "name": "Zoë"})

    assert json.loads(line) == {"title": EVIL, "name": "Zoë"}
    assert not FORBIDDEN & set(line)
    assert "Zoë" in line


@pytest.mark.parametrize("make", [visible, lambda text: str(Text(visible(text)))])
def test_half_a_character_can_be_written(make: Callable[[str], str]) -> None:
    assert make("a\udcff").encode() == rb"a\udcff"


def test_a_log_goes_into_a_pipe_as_it_is(desk: Desk) -> None:
    raw = EVIL.encode() + b"\xff\r\n"
    reply = heartbeat.ReadRunLogResponse(chunk=raw, next_offset=len(raw), complete=True)

    outcome = desk.run(
        "agent-runs", "logs", "r1", answers=[Answer(AGENT_RUNS, "ReadRunLog", reply)]
    )

    assert outcome.raw == raw


def test_a_log_on_a_terminal_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    # A character and a line end, each cut in two by the pieces.
    pour([b"gr\xc3", b"\xbcn\r", b"\nover\rwritten\ttab ", EVIL.encode(), b"\xff"])

    assert terminal.seen() == f"grün\nover\nwritten\ttab {SHOWN}\ufffd"


def test_a_table_on_a_terminal_has_colour_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    evil = Text(EVIL, style="green")

    draw(table_of(["ID", "TITLE"], [["r1", evil]]))

    written = terminal.seen()
    assert "\x1b[1mID" in written
    assert "\x1b]" not in written
    assert not (FORBIDDEN - {"\x1b"}) & set(written)
    assert "[red]a[/red]" in "".join(written.split("\n"))


def test_a_narrow_terminal_keeps_ids_and_times_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    some_id, moment = "0197f3a0-0000-7000-8000-000000000001", "2026-11-29T12:00:00Z"

    row = [some_id, "TEAM-2", "in_progress", moment, "a word and one more"]
    draw(table_of(["ID", "NAME", "STATUS", "AT", "TITLE"], [row], fixed=(0, 3)))

    assert any(some_id in line and moment in line for line in terminal.seen().splitlines())


def test_a_column_that_says_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    draw(table_of(["SPAN", "LINKS", "STATUS"], [["a", "", "ok"], ["b", "", ""]]))

    assert "LINKS" not in terminal.seen()
    assert "STATUS" in terminal.seen()
