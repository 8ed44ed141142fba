"""What a person reads when a stack does not start, waits, breaks at its end, or was killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
from uuid import uuid4

import pytest

from reveille_cli.stack.errors import StartFailed
from reveille_cli.stack.leftovers import count_agents, find_leftovers
from reveille_cli.stack.lock import is_locked
from reveille_cli.stack.process import ProcessState
from reveille_heartbeat.adapters.process.child import spawn
from reveille_heartbeat.adapters.spool import Spool

from .conftest import Place, Recorder, job, stand_in

WAITS = "the database does not answer yet, waiting: refused"


@pytest.mark.parametrize("detach", [(), ("--detach",)])
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("FRONT_PORT", "99999", "FRONT_PORT=99999 is no port for front"),
        ("FRONT_PORT", "abc", "FRONT_PORT=abc is no port for front"),
        ("FRONT_PORT", "[red]", "FRONT_PORT=[red] is no port for front"),
        ("BACK_PORT", "7001", "back (BACK_PORT) and front (FRONT_PORT) both want port 7001"),
    ],
)
def test_a_port_that_cannot_be_is_refused_by_the_name_of_its_variable(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    detach: tuple[str, ...],
    variable: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(variable, value)
    place.write(
        {
            "front": stand_in(7001, ports=["127.0.0.1:${FRONT_PORT:-7001}:7001"]),
            "back": stand_in(7001, ports=["127.0.0.1:${BACK_PORT:-7002}:7001"]),
        }
    )

    told = place.reveille("up", *detach)
    assert told.returncode == 2
    assert said in told.stderr
    assert "Traceback" not in told.stderr

    scripted = place.reveille("up", *detach, "-o", "json")
    assert scripted.returncode == 2
    error = json.loads(scripted.stdout)["error"]
    assert error["reason"] == "compose_invalid"
    assert said in error["message"]
    assert error["hint"]


def test_a_stack_of_which_nothing_starts_is_not_up(two: Place) -> None:
    broken = {"front": {"EXIT_CODE": "2"}, "back": {"EXIT_CODE": "2"}}
    supervisor = two.supervisor(environment=broken)

    with pytest.raises(StartFailed, match="no service could start: back and front exited"):
        supervisor.start()

    assert not is_locked(two.data_dir)
    two.write(
        {
            name: job(
                "import sys; sys.exit('LOG_LEVEL: no such level')",
                environment={"REVEILLE_LISTEN": "0.0.0.0:7001"},
            )
            for name in ("one", "two", "three")
        }
    )
    up = two.reveille("up", "--free-ports")
    assert up.returncode == 1
    assert "error: no service could start: one, three and two exited with code 1" in up.stderr
    assert up.stderr.count("no such level") == 1
    assert up.stderr.count("saying the same as") == 2
    assert "Reveille is up" not in up.stderr
    scripted = two.reveille("up", "--free-ports", "--detach", "-o", "json")
    assert scripted.returncode == 1
    assert json.loads(scripted.stdout)["error"]["message"].count("no such level") == 1


@pytest.mark.parametrize(
    "line", [WAITS, f"slow: {WAITS}", json.dumps({"event": WAITS, "level": "warning"})]
)
def test_what_a_start_waits_for_is_told_while_it_waits(place: Place, line: str) -> None:
    place.write({"slow": stand_in(7001, environment={"NEVER_READY": "1", "SAY": line})})
    told = threading.Event()

    class Told(Recorder):
        def waiting(self, status: object, reason: str, seconds: int) -> None:
            self.notes.append(reason)
            told.set()

    heard = Told()
    supervisor = place.supervisor(heard, ready_timeout=3600)
    thread = threading.Thread(target=supervisor.start)
    thread.start()
    try:
        assert told.wait(30)
    finally:
        supervisor.request_stop()
        thread.join(30)
    assert heard.notes[0] == "the database does not answer yet, waiting"


def test_a_crash_at_the_end_is_told(two: Place) -> None:
    heard = Recorder()
    with two.supervisor(heard, environment={"back": {"LAST_CODE": "5"}}) as supervisor:
        assert supervisor.not_ready() == []

    status = supervisor.process("back").status()
    assert (status.state, status.exit_code) == (ProcessState.EXITED, 5)
    assert heard.failures["back"][-1] == "drained"
    assert supervisor.any_failed()
    assert supervisor.process("front").state is ProcessState.STOPPED


def test_free_ports_are_the_same_the_next_time(two: Place) -> None:
    with two.supervisor(scale={"back": 2}) as supervisor:
        first = {status.name: status.addresses for status in supervisor.statuses()}
    with two.supervisor() as supervisor:
        again = {status.name: status.addresses for status in supervisor.statuses()}
        assert again.items() <= first.items()
    two.data_dir.ports.write_text('[{"service": 1}, "x"]')
    with two.supervisor() as supervisor:
        assert supervisor.not_ready() == []


def test_where_webhooks_go_is_said(two: Place) -> None:
    two.write(
        {
            "front": stand_in(
                7001,
                environment={"REVEILLE_PUBLIC_URL": "http://127.0.0.1:7005/"},
                ports=["127.0.0.1:7005:7001"],
            )
        }
    )
    up = two.reveille("up", "--detach", "--free-ports", "-o", "json")
    assert up.returncode == 0, up.stderr
    document = json.loads(up.stdout)
    address = document["services"]["front"][0]["grpc"]

    assert document["hooks_url"] == f"http://{address}/hooks/"
    status = two.reveille("status")
    assert f"webhooks http://{address}/hooks/TOKEN" in status.stdout
    seen = json.loads(two.reveille("status", "-o", "json").stdout)
    assert seen["hooks_url"] == document["hooks_url"]
    assert seen["started_at"].endswith("Z")
    assert seen["processes"][0]["started_at"].endswith("Z")
    assert two.reveille("down").returncode == 0


def test_a_second_start_leaves_the_log_of_the_first_alone(two: Place) -> None:
    assert two.reveille("up", "--detach", "--free-ports").returncode == 0
    log = two.data_dir.log("supervisor")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    before = log.read_text()

    second = two.reveille("up", "--detach", "--free-ports")

    assert second.returncode == 1
    assert second.stderr.count("already running") == 1
    assert log.read_text() == before
    assert two.reveille("down").returncode == 0


def test_a_supervisor_that_breaks_before_it_has_a_log_is_quoted(two: Place) -> None:
    two.data_dir.prepare()
    # A folder where the supervisor writes a file.
    two.data_dir.ports.mkdir()

    up = two.reveille("up", "--detach", "--free-ports")

    assert up.returncode == 1
    assert "ports.json" in up.stderr


def test_before_the_first_start_all_say_the_same(two: Place) -> None:
    said = {two.reveille(verb).stderr for verb in ("status", "down")}

    assert len(said) == 1
    assert f"no stack runs on {two.data_dir.root}" in said.pop()
    assert not two.data_dir.root.exists()


def test_a_damaged_record_is_named_and_put_right(two: Place) -> None:
    assert two.reveille("up", "--detach", "--free-ports").returncode == 0
    two.data_dir.record.write_text("{")

    status = two.reveille("status", "-o", "json")
    assert status.returncode == 1
    assert json.loads(status.stdout)["error"]["reason"] == "record_damaged"
    # Its supervisor is found all the same.
    assert two.reveille("down").returncode == 0
    assert find_leftovers(two.data_dir) == []

    two.data_dir.record.write_text('{"phase": "running"}')
    assert two.reveille("status").returncode == 1
    down = two.reveille("down")
    assert down.returncode == 0
    assert "is damaged" in down.stderr
    assert two.reveille("status").returncode == 3


def test_the_end_in_the_foreground_is_said(two: Place) -> None:
    with subprocess.Popen(
        two.command("up", "--free-ports"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as up:
        assert up.stderr is not None
        said = []
        for line in up.stderr:
            said.append(line)
            if "Ctrl-C" in line:
                up.send_signal(signal.SIGINT)
    assert up.returncode == 0
    assert said[-1] == f"The stack on {two.data_dir.root} is down.\n"


async def test_agents_that_go_on_are_counted(two: Place) -> None:
    two.data_dir.prepare()
    spools = [
        Spool(two.data_dir.volume("spool") / str(uuid4())),
        Spool(two.folder / "elsewhere" / str(uuid4())),
    ]
    waiting = []
    for spool in spools:
        spool.prepare(b"{}", b"")
        waiting.append(
            spawn(
                spool,
                ["cat"],
                directory=spool.work,
                environment={"PATH": os.environ["PATH"]},
                place="here",
                seconds=0,
                grace=1,
                file_bytes=1024,
            )
        )
    assert count_agents(two.data_dir) == 1

    two.data_dir.record.write_text("{")
    down = two.reveille("down", "-o", "json")
    assert json.loads(down.stdout)["agents"] == 1
    assert "1 agent still runs; the next `reveille up` takes it over." in down.stderr

    for one in waiting:
        one.withdraw()
        await one.child.ended.wait()
    assert count_agents(two.data_dir) == 0
