"""What a supervisor's listener writes, and what its files remember."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reveille_cli.stack.background import _EventListener
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import RecordDamaged
from reveille_cli.stack.listener import LogListener
from reveille_cli.stack.lock import StackLock, lock_holder
from reveille_cli.stack.options import StackOptions
from reveille_cli.stack.portbook import read_ports, remember_ports
from reveille_cli.stack.ports import PortMap
from reveille_cli.stack.process import ProcessState, ProcessStatus
from reveille_cli.stack.record import read_record
from reveille_cli.stack.waits import waited_for

STATUS = ProcessStatus(
    name="one",
    service="one",
    replica=1,
    state=ProcessState.EXITED,
    identity=None,
    exit_code=2,
    started_at=None,
    addresses={},
    log="",
)


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    made = DataDir.at(tmp_path / "data")
    made.prepare()
    return made


def test_what_several_say_is_written_once() -> None:
    lines: list[str] = []
    listener = LogListener(lines.append)

    for name in ("one", "two"):
        listener.failed(replace(STATUS, name=name), ["no such level"])
    listener.failed(replace(STATUS, name="three"), [])

    assert lines == [
        "one exited with code 2; its last lines:",
        "  | no such level",
        "two exited with code 2, saying the same as one",
        "three exited with code 2; its last lines:",
    ]


def test_waiting_is_written_now_and_then() -> None:
    lines: list[str] = []
    listener = LogListener(lines.append)

    for seconds in range(2, 14):
        listener.waiting(STATUS, "waiting", seconds)
    listener.waiting(STATUS, "waiting for more", 14)

    assert lines == ["one: waiting (2 s)", "one: waiting (12 s)", "one: waiting for more (14 s)"]


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        (ProcessState.EXITED, 2, "one: exited (code 2)"),
        (ProcessState.EXITED, -9, "one: exited (SIGKILL)"),
        (ProcessState.STOPPED, -15, "one: stopped"),
        (ProcessState.STOPPED, 0, "one: stopped"),
        (ProcessState.WAITING, None, "one: waiting"),
    ],
)
def test_an_end_is_written_with_its_code(state: ProcessState, code: int | None, said: str) -> None:
    lines: list[str] = []
    LogListener(lines.append).changed(replace(STATUS, state=state, exit_code=code))
    assert lines == [said]


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ([], ""),
        (["serving"], ""),
        (["migrate: no answer yet, waiting: refused"], "no answer yet, waiting"),
        ([json.dumps({"event": "no answer yet, waiting: refused"})], "no answer yet, waiting"),
        (['["x"]'], ""),
    ],
)
def test_what_a_process_waits_for(tail: list[str], said: str) -> None:
    assert waited_for(tail) == said


def test_ports_are_remembered_beside_those_of_other_runs(data_dir: DataDir) -> None:
    assert read_ports(data_dir) == {}
    remember_ports(data_dir, {("a", 2, 80): 1000}, PortMap({("a", 1, 80): 1001}, {}))
    assert read_ports(data_dir) == {("a", 2, 80): 1000, ("a", 1, 80): 1001}

    data_dir.ports.write_text(
        '[{"service": "a"}, 5, {"service": "a", "replica": 1, "container": 1, "port": 70000}]'
    )
    assert read_ports(data_dir) == {}
    data_dir.ports.write_text("{}")
    assert read_ports(data_dir) == {}


def test_the_lock_says_who_holds_it(data_dir: DataDir) -> None:
    assert lock_holder(data_dir) is None
    with StackLock(data_dir):
        holder = lock_holder(data_dir)
        assert holder is not None
        assert holder.pid == os.getpid()
        assert holder.is_alive()
    data_dir.lock.write_text("[]")
    assert lock_holder(data_dir) is None


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '"x"', '{"supervisor": {"pid": 1}}'])
def test_a_damaged_record_is_no_record(data_dir: DataDir, text: str) -> None:
    assert read_record(data_dir) is None
    data_dir.record.write_text(text)
    with pytest.raises(RecordDamaged, match=r"supervisor\.json is damaged"):
        read_record(data_dir)


def test_options_go_to_another_process_and_back() -> None:
    options = StackOptions(
        compose_file=Path("/a/b.yml"), data_dir=Path("/c"), free_ports=True, scale={"x": 2}
    )
    assert StackOptions.read(json.loads(json.dumps(options.as_json()))) == options


def test_a_log_on_a_full_disk_loses_lines_and_nothing_else(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = io.StringIO()
    listener = _EventListener(heard, data_dir)
    monkeypatch.setattr(data_dir.__class__, "begin_log", lambda *_: Path("/dev/full"))
    # Its own: the descriptor of the log is put in the place of that of the errors.
    errors = (tmp_path / "errors").open("w")
    monkeypatch.setattr(sys, "stderr", errors)
    listener.note("stopping")
    with contextlib.suppress(OSError):
        errors.close()

    assert json.loads(heard.getvalue()) == {"kind": "note", "text": "stopping"}
