"""`reveille up`, `down` and `status` as a person or a script uses them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from reveille_cli.stack.health import Health, probe
from reveille_cli.stack.leftovers import find_leftovers
from reveille_cli.stack.lock import is_locked

from .conftest import Place, job, stand_in


def test_a_stack_in_the_background(two: Place) -> None:
    up = two.reveille("up", "--detach", "--free-ports", "-o", "json")

    assert up.returncode == 0, up.stderr
    services = json.loads(up.stdout)["services"]
    assert probe(services["front"][0]["grpc"]) is Health.SERVING
    assert "front: ready" in up.stderr

    status = two.reveille("status", "-o", "json")
    assert status.returncode == 0, status.stderr
    seen = json.loads(status.stdout)
    assert (seen["running"], seen["ok"], seen["phase"]) == (True, True, "running")
    by_name = {process["name"]: process for process in seen["processes"]}
    assert by_name["front"]["health"] == "serving"
    assert by_name["front"]["pid"] == services["front"][0]["pid"]
    assert by_name["front"]["uptime"] > 0
    assert (by_name["migrate"]["state"], by_name["migrate"]["exit_code"]) == ("done", 0)

    second = two.reveille("up", "--detach", "--free-ports")
    assert second.returncode == 1
    assert "already running" in second.stderr
    assert "reveille down" in second.stderr

    down = two.reveille("down")
    assert down.returncode == 0, down.stderr
    assert find_leftovers(two.data_dir) == []
    assert not two.data_dir.endpoints.exists()

    after = two.reveille("status", "-o", "json")
    assert after.returncode == 3
    assert json.loads(after.stdout)["running"] is False
    assert two.reveille("down").returncode == 3


def test_status_shows_what_has_ended(two: Place) -> None:
    assert two.reveille("up", "--detach", "--free-ports").returncode == 0
    record = json.loads(two.data_dir.record.read_text())
    back = next(entry for entry in record["processes"] if entry["name"] == "back")
    process = psutil.Process(back["identity"]["pid"])
    process.kill()
    # Its parent, the supervisor, reaps it.
    process.wait(10)
    _until(lambda: '"exited"' in two.data_dir.record.read_text())

    status = two.reveille("status")

    assert status.returncode == 1
    [line] = [line for line in status.stdout.splitlines() if line.startswith("back")]
    assert line.split()[:4] == ["back", "exited", "killed", "(SIGKILL)"]
    assert "back was killed by SIGKILL" in two.data_dir.log("supervisor").read_text()
    assert two.reveille("down").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stack_in_the_foreground_ends_with_a_signal(two: Place, number: int) -> None:
    with subprocess.Popen(
        two.command("up", "--free-ports"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as up:
        assert up.stdout is not None
        said = []
        for line in up.stdout:
            said.append(line)
            if "Ctrl-C" in line:
                os.killpg(up.pid, number)
        up.wait(30)

    assert up.returncode == 0, "".join(said)
    assert "back: stopped\n" in said
    assert find_leftovers(two.data_dir) == []


def test_a_failure_shows_in_the_exit_code_of_the_whole(two: Place) -> None:
    two.write(
        {"good": stand_in(7001), "bad": stand_in(7002, environment={"EXIT_CODE": "9"})},
    )
    with subprocess.Popen(
        two.command("up", "--free-ports"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stderr is not None
        said = []
        for line in up.stderr:
            said.append(line)
            if "Ctrl-C" in line:
                up.send_signal(signal.SIGINT)
        up.wait(30)

    assert up.returncode == 1
    assert "bad exited with code 9; its last lines:\n" in said
    assert "  | cannot go on\n" in said
    assert any(line.startswith("Reveille is up without bad") for line in said)


def test_a_failing_start_in_the_background_is_told(two: Place) -> None:
    two.write(
        {
            "migrate": job("raise SystemExit('no such role')"),
            "front": stand_in(
                7001, depends_on={"migrate": {"condition": "service_completed_successfully"}}
            ),
        }
    )

    up = two.reveille("up", "--detach", "--free-ports", "-o", "json")

    assert up.returncode == 1
    assert json.loads(up.stdout)["error"]["reason"] == "start_failed"
    assert "no such role" in up.stderr
    assert two.reveille("status").returncode == 3


def test_what_a_killed_supervisor_ran_ends_with_it(two: Place) -> None:
    assert two.reveille("up", "--detach", "--free-ports").returncode == 0
    _kill_supervisor(two)

    _until(lambda: find_leftovers(two.data_dir) == [])
    assert two.data_dir.log("front").read_text().endswith("drained\n")
    status = two.reveille("status")
    assert status.returncode == 3
    assert "died without stopping the stack. `reveille up` starts it again" in status.stderr
    down = two.reveille("down")
    assert down.returncode == 0, down.stderr
    assert "died without stopping its stack" in down.stderr
    after = two.reveille("status", "-o", "json")
    assert (after.returncode, json.loads(after.stdout)["died"]) == (3, False)
    assert two.reveille("down").returncode == 3


def test_a_killed_supervisor_is_seen_and_cleaned_up_by_the_next(two: Place) -> None:
    first = _orphan(two)
    status = two.reveille("status")
    assert status.returncode == 3
    assert "leaving 2 processes behind" in status.stderr

    up = two.reveille("up", "--detach", "--free-ports")

    assert up.returncode == 0, up.stderr
    assert "an earlier supervisor was killed; stopping what it left behind" in up.stderr
    assert all(_is_gone(pid) for pid in first)
    assert two.reveille("status").returncode == 0
    assert two.reveille("down").returncode == 0


def test_down_cleans_up_after_a_killed_supervisor(two: Place) -> None:
    pids = _orphan(two)

    down = two.reveille("down")

    assert down.returncode == 0, down.stderr
    assert all(_is_gone(pid) for pid in pids)
    assert two.reveille("down").returncode == 3


def test_down_never_signals_a_recycled_pid(two: Place) -> None:
    assert two.reveille("up", "--detach", "--free-ports").returncode == 0
    _kill_supervisor(two)
    record = json.loads(two.data_dir.record.read_text())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        record["supervisor"]["pid"] = stranger.pid
        two.data_dir.record.write_text(json.dumps(record))

        assert two.reveille("status").returncode == 3
        assert two.reveille("down").returncode in {0, 3}
        assert stranger.poll() is None
        stranger.communicate()
    assert stranger.returncode == 0


def test_a_taken_port_is_a_clear_message(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place.write({"front": stand_in(7001, ports=[f"127.0.0.1:${{FRONT_PORT:-{port}}}:7001"])})

        up = place.reveille("up")

    assert up.returncode == 1
    assert f"port {port}" in up.stderr
    assert "FRONT_PORT=" in up.stderr
    assert "--free-ports" in up.stderr
    assert "Traceback" not in up.stderr


def test_an_unusable_data_directory_is_a_clear_message(two: Place) -> None:
    (two.folder / "data").write_text("a file")

    for arguments in (("up",), ("up", "--detach"), ("status",), ("down",)):
        said = two.reveille(*arguments)
        assert said.returncode in {1, 3}
        assert "Traceback" not in said.stderr
        assert "data" in said.stderr


def test_input_that_is_refused_exits_with_2(two: Place) -> None:
    assert two.reveille("up", "--scale", "back").returncode == 2
    assert two.reveille("up", "--scale", "nobody=2").returncode == 2
    assert two.reveille("up", "--file", str(two.folder / "missing.yml")).returncode == 2


def test_keys_are_private_and_stay(two: Place) -> None:
    first = two.reveille("keys")
    assert first.returncode == 0, first.stderr
    keys = Path(first.stdout.strip())
    before = {file.name: file.read_bytes() for file in keys.iterdir()}

    two.reveille("keys")

    assert {file.name: file.read_bytes() for file in keys.iterdir()} == before
    assert {stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir()} == {0o600}
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert stat.S_IMODE(two.data_dir.root.stat().st_mode) == 0o700


def _orphan(place: Place) -> list[int]:
    """Start a stack in the background, kill its supervisor, return what it left behind."""
    place.write(
        {
            name: stand_in(port, environment={"STUBBORN": "1"}, stop_grace_period="100ms")
            for name, port in (("front", 7001), ("back", 7002))
        }
    )
    assert place.reveille("up", "--detach", "--free-ports").returncode == 0
    _kill_supervisor(place)
    left = [leftover.pid for leftover in find_leftovers(place.data_dir)]
    assert len(left) == 2
    return left


def _kill_supervisor(place: Place) -> None:
    pid = json.loads(place.data_dir.record.read_text())["supervisor"]["pid"]
    psutil.Process(pid).kill()
    # Its last thread lets the lock go, a little after the first has ended.
    _until(lambda: not is_locked(place.data_dir))


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline, pause = time.monotonic() + 20, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)
