"""How an agent's process is started, watched and ended; what it leaves is told truly."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.heartbeat.conftest import Service, Stage
from tests.integration.heartbeat.kit import ANSWER, World

from reveille.common.v1 import reason_pb2
from reveille.explain.v1 import explain_service_pb2 as explain_pb
from reveille.heartbeat.v1 import run_pb2, wakeup_pb2
from reveille_heartbeat.adapters.process import identity, tree
from reveille_heartbeat.adapters.process.identity import Sent, is_alive, start_ticks
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_runtime.errors import InvalidArgument
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_testkit.waiting import eventually

# Leaves its number where the test finds it, then waits to be ended.
LINGER = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.{disposition})
pathlib.Path({path!r}).write_text(str(os.getpid()))
print("ready", flush=True)
while True:
    signal.pause()
"""


RESULT = "import os, pathlib\npathlib.Path(os.environ['REVEILLE_RESULT_FILE'])"


def linger(path: Path, disposition: str = "SIG_DFL") -> str:
    return LINGER.format(path=str(path), disposition=disposition)


def content_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def process_in(path: Path) -> ProcessIdentity:
    """Wait for the number that an agent leaves."""

    async def look() -> str:
        return content_of(path)

    pid = int(await eventually(look, f"{path.name} is written"))
    ticks = start_ticks(pid)
    assert ticks is not None
    return ProcessIdentity(pid, ticks)


async def gone(process: ProcessIdentity) -> None:
    async def look() -> bool:
        return not is_alive(process)

    await eventually(look, f"process {process.pid} is gone")


async def outcome(world: World, code: str, **more: Any) -> run_pb2.HeartbeatRun:
    agent = await world.script(code, **more)
    result = await world.wake(agent, "manual:1")
    wakeup = await world.settled(result.wakeup_id)
    return await world.run(wakeup.run_id)


async def told(world: World, about: str) -> list[explain_pb.Finding]:
    answer = await world.explain.Explain(explain_pb.ExplainRequest(id=about))
    return list(answer.findings)


async def test_an_exit_status_is_the_agents_word(world: World) -> None:
    run = await outcome(world, "import sys\nprint('no', file=sys.stderr)\nsys.exit(3)")

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert run.exit_code == 3
    assert run.message == "the process exited with status 3; its last words: no"
    assert await world.log(run.run_id, run_pb2.LOG_STREAM_STDERR) == "no\n"
    assert run.attempt == 1


async def test_an_agent_that_kills_itself_is_told_by_its_signal(world: World) -> None:
    run = await outcome(world, "import os\nos.kill(os.getpid(), 9)")

    assert (run.exit_code, run.message) == (137, "the process was ended by signal 9")


async def test_a_program_that_a_script_does_not_find_fails_with_the_shells_word(
    world: World,
) -> None:
    agent = await world.agent("none", "process", {"command": ["sh", "-c", "/no/such/program"]})
    result = await world.wake(agent)
    wakeup = await world.settled(result.wakeup_id)

    run = await world.run(wakeup.run_id)
    assert run.exit_code == 127
    assert "/no/such/program" in await world.log(run.run_id, run_pb2.LOG_STREAM_STDERR)
    assert "the program was not found; its last words: " in run.message
    assert "/no/such/program: not found" in run.message
    (finding,) = [
        each
        for each in await told(world, run.run_id)
        if (each.subject, each.state) == ("agent_run", "failed")
    ]
    assert finding.command == f"reveille agent-runs logs {run.run_id} --stream stderr"


async def test_the_last_words_hide_what_the_log_hides(world: World) -> None:
    run = await outcome(
        world,
        "import os, sys\nprint('bad key', os.environ['API_KEY'], file=sys.stderr)\nsys.exit(1)",
        config={"env": {"API_KEY": "hush-hush"}},
    )

    assert run.message.endswith("its last words: bad key *********")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"cwd": "/no/such/folder"}, "cwd: /no/such/folder is not a folder here"),
        ({"command": ["no-such-program"]}, "command: there is no program no-such-program in PATH"),
        ({"command": ["/etc/passwd"]}, "command: /etc/passwd is not executable"),
    ],
)
async def test_a_setting_that_leads_nowhere_is_a_failed_set_up_that_names_it(
    world: World, config: dict[str, Any], field: str
) -> None:
    run = await outcome(world, "", config=config)

    assert run.reason == reason_pb2.REASON_SETUP_FAILED
    assert run.message == f"adapter_config.{field}"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("not json", "not JSON"),
        ("[1]", "JSON object"),
        ('{"summary": 5}', "summary"),
        ('{"issue_status": "finished"}', "issue_status"),
        ('{"result": NaN}', "NaN"),
    ],
)
async def test_a_result_file_that_cannot_be_used_fails_the_run_and_says_why(
    world: World, content: str, word: str
) -> None:
    run = await outcome(world, f"{RESULT}.write_text({content!r})")

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_ADAPTER_FAILED
    assert word in run.message


async def test_what_no_database_can_hold_is_replaced_and_not_refused(world: World) -> None:
    run = await outcome(
        world,
        "import os, pathlib\n"
        "pathlib.Path(os.environ['REVEILLE_RESULT_FILE']).write_text("
        '\'{"summary": "a\\\\u0000b\\\\ud800c"}\')',
    )

    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert run.summary == "a\ufffdb\ufffdc"


async def test_a_cancelled_run_ends_with_its_whole_family(world: World, tmp_path: Path) -> None:
    """The agent, its child in another session, and one that wiped out its own name."""
    daemon = tmp_path / "daemon.py"
    daemon.write_text(linger(tmp_path / "daemon.pid", "SIG_IGN"))
    agent = await world.script(
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-S', {str(daemon)!r}], start_new_session=True)\n"
        + linger(tmp_path / "agent.pid")
    )
    result = await world.wake(agent, "manual:1")
    family = [await process_in(tmp_path / "agent.pid"), await process_in(tmp_path / "daemon.pid")]

    answer = await world.cancel("manual:1")
    assert answer.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    # Settled means gone: nothing else may begin before.
    assert not any(is_alive(process) for process in family)
    run = await world.run(wakeup.run_id)
    assert (run.state, run.occupied) == (run_pb2.RUN_STATE_CANCELLED, False)
    # The agent was killed by the cancel: there was no result that came too late.
    kinds = {finding.state for finding in await told(world, run.run_id)}
    assert "run.stopped" in kinds
    assert "run.late_result" not in kinds


async def test_an_end_without_a_summary_is_told_in_words(world: World) -> None:
    run = await outcome(world, "")

    (finding,) = [f for f in await told(world, run.run_id) if f.state == "run.succeeded"]
    assert finding.text == "the agent ended well, and left no summary"
    (attempt,) = [f for f in await told(world, run.run_id) if f.state == "succeeded"]
    assert attempt.command == f"reveille agent-runs logs {run.run_id}"


async def test_an_issue_that_its_agent_left_open_can_be_closed_by_hand(world: World) -> None:
    made = await world.issue(await world.script(""), "manual:1")
    issue_id = made.issue.issue_id
    (before,) = [f for f in await told(world, issue_id) if f.subject == "issue"]
    await world.settled(made.wakeup.wakeup_id)
    (after,) = [f for f in await told(world, issue_id) if f.subject == "issue"]

    assert "ended without closing it" not in before.text
    assert "its agent ended without closing it" in after.text
    assert after.command == f"reveille issues move {issue_id} done"


async def test_what_a_finished_agent_leaves_behind_is_ended(world: World, tmp_path: Path) -> None:
    daemon = tmp_path / "daemon.py"
    daemon.write_text(linger(tmp_path / "daemon.pid"))
    run = await outcome(
        world,
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-S', {str(daemon)!r}],"
        " start_new_session=True, stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\n",
    )

    assert run.state == run_pb2.RUN_STATE_SUCCEEDED
    pid = int((tmp_path / "daemon.pid").read_text())
    # Nobody may have reaped it yet; ended it has.
    assert not is_alive(ProcessIdentity(pid, start_ticks(pid) or 0))


async def test_a_run_past_its_deadline_is_ended_by_the_rows(
    service: Service, world: World, tmp_path: Path
) -> None:
    agent = await world.script(linger(tmp_path / "pid"), idle_timeout={"seconds": 0})
    result = await world.wake(agent)
    process = await process_in(tmp_path / "pid")

    service.move_clock(3601)
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_FAILED
    assert wakeup.reason == reason_pb2.REASON_RUN_TIMEOUT
    run = await world.run(wakeup.run_id)
    assert run.state == run_pb2.RUN_STATE_TIMED_OUT
    assert run.message == "it ran longer than its limit of 1 h"
    assert not is_alive(process)


async def test_a_silent_run_is_ended_for_its_silence(
    service: Service, world: World, tmp_path: Path
) -> None:
    agent = await world.script(linger(tmp_path / "pid"))
    result = await world.wake(agent)
    await process_in(tmp_path / "pid")

    service.move_clock(901)
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.reason == reason_pb2.REASON_IDLE_TIMEOUT
    assert wakeup.message == "it was silent for longer than its limit of 15 min"


async def test_without_limits_nothing_ends_a_run(
    service: Service, world: World, tmp_path: Path
) -> None:
    agent = await world.script(
        linger(tmp_path / "pid"), run_timeout={"seconds": 0}, idle_timeout={"seconds": 0}
    )
    result = await world.wake(agent, "manual:1")
    await process_in(tmp_path / "pid")

    service.move_clock(86_400 * 3)
    # Its lease looks expired now, on every look; its holder renews it all the same.
    for _ in range(3):
        await service.tick("sweep")
        await service.tick("recovery")
    (run,) = await world.attempts(result.wakeup_id)
    assert run.state == run_pb2.RUN_STATE_RUNNING
    await world.cancel("manual:1")
    await world.settled(result.wakeup_id)


async def test_too_much_output_ends_the_run_and_bounds_the_log(
    stage: Stage, tmp_path: Path
) -> None:
    service = await stage.start(output_limit=10_000)
    world = World(service.client, tmp_path)
    await world.put()
    run = await outcome(world, "while True:\n    print('x' * 99)")

    assert run.state == run_pb2.RUN_STATE_FAILED
    assert run.reason == reason_pb2.REASON_OUTPUT_LIMIT
    assert len(await world.log(run.run_id)) == 10_000


async def test_a_file_past_the_limit_of_the_system_is_told_as_such(
    stage: Stage, tmp_path: Path
) -> None:
    service = await stage.start(file_size_limit=1 << 20, output_limit=1 << 20)
    world = World(service.client, tmp_path)
    await world.put()
    run = await outcome(
        world,
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "with open('big', 'wb') as f:\n    f.write(bytes(2 << 20))\n    f.flush()",
    )

    assert run.reason == reason_pb2.REASON_OUTPUT_LIMIT
    assert "file larger" in run.message


async def test_secrets_are_blanked_out_also_across_pieces(world: World) -> None:
    agent_code = """
import os, sys
def say(text):
    os.write(1, text.encode())
secret = os.environ["DEPLOY_KEY_SECRET"]
say("begin " + secret[:7])
sys.stdin.read()
import threading
threading.Event().wait(0.4)
say(secret[7:] + " end\\n")
say(os.environ["REVEILLE_RUN_TOKEN"])
"""
    run = await outcome(world, agent_code, config={"env": {"DEPLOY_KEY_SECRET": "open-sesame-now"}})
    log = await world.log(run.run_id)

    assert log.startswith("begin " + "*" * 15 + " end\n")
    assert set(log.splitlines()[1]) == {"*"}


async def test_settings_are_judged_when_the_agent_is_made(world: World) -> None:
    with pytest.raises(InvalidArgument) as refused, as_domain_errors():
        await world.agent(
            "bad",
            "process",
            {"command": "ls -l", "cwd": "here", "env": {"REVEILLE_API": "x"}, "shell": True},
        )

    fields = {violation.field for violation in refused.value.violations}
    assert fields == {
        "adapter_config.command",
        "adapter_config.cwd",
        "adapter_config.env.REVEILLE_API",
        "adapter_config.shell",
    }


async def test_output_is_read_from_any_offset(world: World) -> None:
    run = await outcome(world, "print('0123456789' * 10)\n" + ANSWER)
    whole = await world.log(run.run_id)

    async def read(offset: int, limit: int) -> run_pb2.ReadRunLogResponse:
        request = run_pb2.ReadRunLogRequest(run_id=run.run_id, offset=offset, limit=limit)
        answer: run_pb2.ReadRunLogResponse = await world.runs.ReadRunLog(request)
        return answer

    first = await read(0, 7)
    assert (first.chunk, first.next_offset, first.complete) == (b"0123456", 7, False)
    rest = await read(first.next_offset, 1 << 20)
    assert rest.chunk.decode() == whole[7:]
    assert rest.complete
    past = await read(1_000_000, 10)
    assert (past.chunk, past.next_offset, past.complete) == (b"", 1_000_000, True)


async def test_the_files_of_an_agent_are_nobody_elses(world: World, tmp_path: Path) -> None:
    code = linger(tmp_path / "pid")
    agent = await world.script(code)
    result = await world.wake(agent, "manual:1", payload=wakeup_pb2.Payload(body=b"private"))
    await process_in(tmp_path / "pid")
    (run,) = await world.attempts(result.wakeup_id)
    folder = tmp_path / "spool" / run.run_id

    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700
    for entry in folder.iterdir():
        if entry.is_file():
            assert entry.stat().st_mode & 0o077 == 0, entry
    assert (folder / "payload.body").read_bytes() == b"private"
    await world.cancel("manual:1")
    await world.settled(result.wakeup_id)
    assert not folder.exists()


async def test_another_replica_cancels_an_agent_that_goes_on_writing(
    stage: Stage, tmp_path: Path
) -> None:
    """The run is ended first, then its agent; what that one then answers changes nothing."""
    await stage.start()
    other = await stage.start(engine_concurrency=0, recovery_interval=3600, sweep_interval=3600)
    world = World(other.client, tmp_path)
    await world.put()
    agent = await world.script(
        "import os, pathlib, signal\n"
        "def answer(*_):\n"
        f'    {RESULT[RESULT.index("pathlib.Path") :]}.write_text(\'{{"summary": "late"}}\')\n'
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, answer)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "import threading\n"
        "while not threading.Event().wait(0.001):\n    os.write(1, b'x' * 4095 + b'\\n')\n"
    )
    result = await world.wake(agent, "manual:1")
    process = await process_in(tmp_path / "pid")
    (run,) = await world.attempts(result.wakeup_id)
    await eventually(lambda: world.log(run.run_id), "it has written", until=lambda log: log != "")

    await world.cancel("manual:1")
    ended = await world.run(run.run_id)
    assert ended.state == run_pb2.RUN_STATE_CANCELLED
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    assert not is_alive(process)
    after = await world.run(run.run_id)
    assert (after.state, after.summary) == (run_pb2.RUN_STATE_CANCELLED, "")
    kinds = [finding.state for finding in await told(world, run.run_id)]
    assert "run.late_result" in kinds


async def test_an_agent_has_the_grace_of_its_own_settings(stage: Stage, tmp_path: Path) -> None:
    service = await stage.start(kill_grace=0.1)
    world = World(service.client, tmp_path)
    await world.put()
    agent = await world.script(
        "import os, pathlib, signal, threading\n"
        "def tidy(*_):\n"
        "    threading.Event().wait(1.0)\n"
        f"    pathlib.Path({str(tmp_path / 'tidy')!r}).touch()\n"
        "    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, tidy)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "while True:\n    signal.pause()\n",
        config={"grace_seconds": 20},
    )
    result = await world.wake(agent, "manual:1")
    await process_in(tmp_path / "pid")
    await world.cancel("manual:1")
    await world.settled(result.wakeup_id)

    assert (tmp_path / "tidy").exists()


async def test_a_process_beyond_our_reach_is_told_of_and_waited_for_no_longer(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that became another user's, as sudo makes it, cannot be signalled."""
    agent = await world.script(linger(tmp_path / "pid"))
    result = await world.wake(agent, "manual:1")
    process = await process_in(tmp_path / "pid")
    true_send = identity.send

    def send(which: ProcessIdentity, number: signal.Signals) -> Sent:
        return Sent.REFUSED if which == process else true_send(which, number)

    monkeypatch.setattr(tree, "send", send)
    await world.cancel("manual:1")
    wakeup = await world.settled(result.wakeup_id)

    assert wakeup.state == wakeup_pb2.WAKEUP_STATE_CANCELLED
    (told_of,) = [
        each
        for each in await told(world, wakeup.run_id)
        if each.state == "adapter.process_unreachable"
    ]
    assert "belong to another user" in told_of.text
    assert true_send(process, signal.SIGKILL) is Sent.DONE
    await gone(process)


async def test_what_is_beyond_the_first_pieces_of_fast_output_is_all_there(
    world: World, tmp_path: Path
) -> None:
    run = await outcome(
        world, "import os\nfor n in range(30):\n    os.write(1, f'{n:08d}'.encode() * 10_000)\n"
    )
    pieces, offset = [], 0
    while True:
        request = run_pb2.ReadRunLogRequest(run_id=run.run_id, offset=offset, limit=1 << 20)
        part = await world.runs.ReadRunLog(request)
        pieces.append(part.chunk)
        offset = part.next_offset
        if part.complete:
            break

    whole = b"".join(pieces).decode()
    assert whole == "".join(f"{n:08d}" * 10_000 for n in range(30))
