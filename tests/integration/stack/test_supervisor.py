"""A supervisor runs a compose file: in order, watched, restarted when told, stopped cleanly."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading

import psutil
import pytest

from reveille_cli.stack import longlogs
from reveille_cli.stack.datadir import DataDir
from reveille_cli.stack.errors import AlreadyRunning, ComposeInvalid, PortTaken, StartFailed
from reveille_cli.stack.health import Health, probe
from reveille_cli.stack.leftovers import find_leftovers
from reveille_cli.stack.longlogs import cut_long_logs
from reveille_cli.stack.process import ProcessState

from .conftest import Place, Recorder, job, stand_in


def test_starts_dependencies_first_and_stops_them_last(two: Place) -> None:
    heard = Recorder()
    with two.supervisor(heard) as supervisor:
        assert supervisor.not_ready() == []
        started = [name for name, state in heard.states if state is ProcessState.STARTING]
        assert started == ["migrate", "back", "front"]
        assert probe(supervisor.address("front")) is Health.SERVING

    ended = [name for name, state in heard.states if state is ProcessState.STOPPED]
    assert ended == ["front", "back"]
    assert not supervisor.any_failed()
    assert two.data_dir.log("front").read_text().endswith("drained\n")
    assert find_leftovers(two.data_dir) == []


def test_the_logs_are_cut_while_the_stack_runs(two: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with two.supervisor() as supervisor:

        def cut(data_dir: DataDir) -> None:
            cut_long_logs(data_dir, longest=8)
            supervisor.request_stop()

        monkeypatch.setattr(longlogs, "cut_long_logs", cut)
        supervisor.wait_for_stop()
        log = two.data_dir.log("front")
        assert "serving\n" in log.with_suffix(".log.1").read_text()

    assert log.read_text() == "drained\n"


def test_names_of_the_file_become_addresses_of_this_machine(two: Place) -> None:
    with two.supervisor() as supervisor:
        settings = two.settings_of("front")

        assert settings["REVEILLE_LISTEN"] == supervisor.address("front")
        assert settings["BACK_TARGET"] == supervisor.address("back")
        assert settings["URL"] == f"http://localhost:{supervisor.address('front').split(':')[1]}/x"
        endpoints = json.loads(two.data_dir.endpoints.read_text())
        assert endpoints["services"]["back"][0]["grpc"] == supervisor.address("back")
    assert not two.data_dir.endpoints.exists()


def test_a_service_that_ends_is_told_and_not_started_again(two: Place) -> None:
    heard = Recorder()
    with two.supervisor(heard, environment={"back": {"EXIT_CODE": "7"}}) as supervisor:
        [missing] = supervisor.not_ready()

        assert (missing.name, missing.state, missing.exit_code) == ("back", ProcessState.EXITED, 7)
        assert missing.exit_text() == "exited with code 7"
        assert heard.failures["back"][-1] == "cannot go on"
        assert supervisor.process("front").state is ProcessState.READY
    assert supervisor.any_failed()


def test_one_process_can_be_killed_and_started_with_other_settings(two: Place) -> None:
    heard = Recorder()
    with two.supervisor(heard) as supervisor:
        first, address = supervisor.process("back").status().pid, supervisor.address("back")

        assert supervisor.kill("back") == -signal.SIGKILL
        assert supervisor.process("back").status().exit_text() == "was killed by SIGKILL"
        supervisor.start_process("back", {"REVEILLE_CRASH_POINT": "back.somewhere"})
        assert two.settings_of("back")["REVEILLE_CRASH_POINT"] == "back.somewhere"
        supervisor.restart("back")
        assert "REVEILLE_CRASH_POINT" not in two.settings_of("back")

        assert supervisor.process("back").status().pid != first
        assert supervisor.address("back") == address
        assert supervisor.not_ready() == []
    assert not supervisor.any_failed()
    assert heard.failures == {}


def test_a_disk_that_takes_no_more_ends_no_watch(two: Place) -> None:
    heard = Recorder()
    supervisor = two.supervisor(heard)
    supervisor.start()
    back = supervisor.process("back")
    # No file can take this place any more.
    two.data_dir.record.unlink()
    two.data_dir.record.mkdir()
    try:
        os.kill(back.status().pid or 0, signal.SIGKILL)
        assert back.wait_exit(20) == -signal.SIGKILL
        assert "back" in heard.failures

        supervisor.stop()
    finally:
        two.data_dir.record.rmdir()

    assert two.data_dir.log("front").read_text().endswith("drained\n")
    assert supervisor.process("front").state is ProcessState.STOPPED
    assert f"cannot write {two.data_dir.record}: Is a directory" in heard.notes


def test_a_job_that_fails_ends_the_start_with_its_words(two: Place) -> None:
    two.write(
        {
            "migrate": job("import sys; print('no such role'); sys.exit(3)"),
            "front": stand_in(
                7001, depends_on={"migrate": {"condition": "service_completed_successfully"}}
            ),
        }
    )

    with pytest.raises(StartFailed, match=r"migrate exited with code 3\nno such role"):
        two.supervisor().start()

    assert find_leftovers(two.data_dir) == []
    two.write({"front": stand_in(7001)})
    with two.supervisor() as supervisor:
        assert supervisor.not_ready() == []


def test_a_process_that_does_not_end_is_killed(place: Place) -> None:
    place.write({"mule": stand_in(7001, stop_grace_period="100ms", environment={"STUBBORN": "1"})})
    heard = Recorder()

    with place.supervisor(heard) as supervisor:
        pid = supervisor.process("mule").status().pid

    assert pid is not None
    assert not psutil.pid_exists(pid)
    assert heard.notes == ["mule did not end in time and was killed"]


def test_impatience_cuts_the_grace_short(place: Place) -> None:
    place.write({"mule": stand_in(7001, stop_grace_period="1h", environment={"STUBBORN": "1"})})
    supervisor = place.supervisor()
    supervisor.start()

    supervisor.request_stop()
    supervisor.request_stop()
    supervisor.stop()

    assert supervisor.process("mule").state is ProcessState.STOPPED


def test_replicas_have_ports_of_their_own(two: Place) -> None:
    with two.supervisor(scale={"back": 2}) as supervisor:
        second = supervisor.address("back", replica=2)

        assert second != supervisor.address("back")
        assert probe(second) is Health.SERVING
        assert two.settings_of("front")["BACK_TARGET"] == supervisor.address("back")
        endpoints = json.loads(two.data_dir.endpoints.read_text())["services"]["back"]
        assert [replica["process"] for replica in endpoints] == ["back", "back-2"]


@pytest.mark.parametrize("scale", [{"stranger": 2}, {"migrate": 2}, {"back": 0}])
def test_what_cannot_be_scaled_is_refused(two: Place, scale: dict[str, int]) -> None:
    with pytest.raises(ComposeInvalid, match="cannot scale"):
        two.supervisor(scale=scale).start()


def test_a_taken_port_is_named_with_the_way_out(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        place.write({"web-front": stand_in(7001, ports=[f"127.0.0.1:${{WEB_PORT:-{port}}}:7001"])})

        with pytest.raises(PortTaken) as caught:
            place.supervisor(free_ports=False).start()

    assert f"port {port}" in caught.value.message
    assert "web-front" in caught.value.message
    assert "WEB_PORT=" in caught.value.hint
    with place.supervisor(free_ports=False) as supervisor:
        assert supervisor.address("web-front") == f"127.0.0.1:{port}"


def test_one_data_directory_holds_one_stack(two: Place) -> None:
    with two.supervisor() as first:
        with pytest.raises(AlreadyRunning, match="already running"):
            two.supervisor().start()

        assert first.not_ready() == []
        assert two.data_dir.endpoints.exists()


def test_a_start_can_be_given_up(place: Place) -> None:
    place.write({"slow": stand_in(7001, environment={"NEVER_READY": "1"})})
    starting = threading.Event()

    class Impatient(Recorder):
        def changed(self, status: object) -> None:
            starting.set()

    supervisor = place.supervisor(Impatient(), ready_timeout=3600)
    thread = threading.Thread(target=supervisor.start)
    thread.start()
    assert starting.wait(30)
    supervisor.request_stop()
    thread.join(30)
    assert not thread.is_alive()

    supervisor.stop()
    assert supervisor.process("slow").state is ProcessState.STOPPED


def test_stopping_twice_or_before_the_start_is_harmless(two: Place) -> None:
    supervisor = two.supervisor()
    supervisor.stop()
    supervisor.start()
    supervisor.stop()
    supervisor.stop()

    assert find_leftovers(two.data_dir) == []
