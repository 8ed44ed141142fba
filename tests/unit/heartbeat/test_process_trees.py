"""Which processes are an attempt's, which are not, and who takes in those that are left."""

from __future__ import annotations

import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from reveille_heartbeat.adapters.process.identity import (
    Sent,
    is_alive,
    open_process,
    send,
    start_ticks,
)
from reveille_heartbeat.adapters.process.programs import NotRunnable, runnable
from reveille_heartbeat.adapters.process.tree import Ended, Family, ProcessTrees, marked_runs
from reveille_heartbeat.domain.values import ProcessIdentity

# Says that it is there, and ends when nobody holds its input open any more.
LINGER = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def start() -> Iterator[Any]:
    with ExitStack() as stack:

        def start(code: str = LINGER, **more: Any) -> ProcessIdentity:
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                **more,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            ticks = start_ticks(process.pid)
            assert ticks is not None
            return ProcessIdentity(process.pid, ticks)

        yield start


@pytest.fixture
async def trees() -> Any:
    made = ProcessTrees()
    yield made
    await made.close()


def kill(process: ProcessIdentity) -> None:
    """End a process, and set its number free."""
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED)


async def test_a_family_is_a_session_and_whoever_carries_its_mark(start: Any, trees: Any) -> None:
    run_id = uuid4()
    leader = start(env={}, start_new_session=True)
    strayed = start(env={"REVEILLE_RUN_ID": str(run_id)}, start_new_session=True)
    stranger = start(env={"REVEILLE_RUN_ID": str(uuid4())}, start_new_session=True)

    assert set(await trees.members(Family(run_id, leader))) == {leader, strayed}
    assert await trees.members(Family(run_id, None)) == [strayed]
    assert await trees.end(Family(run_id, leader), 5.0) == Ended(found=2)
    assert [is_alive(each) for each in (leader, strayed, stranger)] == [False, False, True]


async def test_a_session_of_a_number_that_came_again_is_a_strangers(start: Any, trees: Any) -> None:
    """The wrapper is long gone, and its number leads another session now."""
    leader = start(env={}, start_new_session=True)
    was = ProcessIdentity(leader.pid, leader.start_ticks - 1)
    assert await trees.members(Family(uuid4(), was)) == []
    assert await trees.end(Family(uuid4(), was), 5.0) == Ended()
    assert is_alive(leader)


async def test_a_session_without_its_leader_is_believed_only_with_a_mark_in_it(
    start: Any, trees: Any
) -> None:
    run_id, code = (
        uuid4(),
        (
            "import os, sys\n"
            "for mark in {marks!r}:\n"
            "    if os.fork() == 0:\n"
            "        os.execve(sys.executable, [sys.executable, '-S', '-c', {linger!r}], mark)\n"
            "sys.stdin.read()"
        ),
    )
    linger = "import signal, sys; print('ready', flush=True); signal.pause()"
    for marks, found in (([{}], 0), ([{}, {"REVEILLE_RUN_ID": str(run_id)}], 2)):
        leader = start(code.format(marks=marks, linger=linger), env={}, start_new_session=True)
        members = await trees.members(Family(run_id, leader))
        while len(members) < len(marks) + 1:
            members = await trees.members(Family(run_id, leader))
        kill(leader)

        assert len(await trees.members(Family(run_id, leader))) == found
        # Seen alive before, its number was never free.
        assert len(await trees.members(Family(run_id, leader, seen=True))) == len(marks)
        assert (await trees.end(Family(run_id, leader, seen=True), 5.0)).found == len(marks)


async def test_marks_name_their_runs_whatever_they_hold(start: Any) -> None:
    run_id = uuid4()
    marked = start(env={"REVEILLE_RUN_ID": str(run_id)})
    start(env={"REVEILLE_RUN_ID": "no id"})

    assert marked_runs()[run_id] == [marked]


def test_a_number_that_became_another_process_is_not_signalled(start: Any) -> None:
    process = start()
    other = ProcessIdentity(process.pid, process.start_ticks + 1)

    assert send(other, signal.SIGKILL) is Sent.GONE
    assert is_alive(process)


def test_a_number_that_became_a_thread_is_no_process_of_ours() -> None:
    """Numbers are shared by both, so an agent's may come again as one of any program's threads."""
    over, numbers = threading.Event(), queue.SimpleQueue[int]()

    def work() -> None:
        numbers.put(threading.get_native_id())
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        was = ProcessIdentity(numbers.get(timeout=10), 1)
        assert open_process(was) is None
        assert send(was, signal.SIGKILL) is Sent.GONE
        assert not is_alive(was)
    finally:
        over.set()
        thread.join()


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let nothing more be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("look", [is_alive, open_process])
def test_who_cannot_look_takes_nobody_for_dead(
    start: Any, look: Callable[[ProcessIdentity], object]
) -> None:
    process = start()

    with pytest.raises(OSError, match="Too many open files"), without_descriptors():
        look(process)


GUARDIAN = """
import os, subprocess, sys
from reveille_heartbeat.adapters.process.orphans import Orphanage, become_guardian, is_guardian

def leave(code):
    # A child that leaves a grandchild behind, in a session of its own.
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "import os, sys\\n"
         "reading, writing = os.pipe()\\n"
         "if os.fork() == 0:\\n    os.setsid(); os.close(reading)\\n    " + code],
        stdin=subprocess.PIPE)
    return child

alone = Orphanage()
assert not is_guardian() and not alone.is_empty()
assert become_guardian() and is_guardian()
home = Orphanage()
assert home.is_empty()
waiting = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
assert not home.is_empty()
home.awaits(waiting.pid)
assert home.is_empty()
child = leave("sys.stdin.read()")
home.awaits(child.pid)
child_input = child.stdin
os.waitid(os.P_PID, child.pid, os.WEXITED)
home.forget(child.pid)
assert not home.is_empty(), "the grandchild lives"
child_input.close()
while not home.is_empty():
    pass
home.forget(waiting.pid)
waiting.stdin.close()
waiting.wait()
# The dead were reaped: nothing is left that was ever ours.
try:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
except ChildProcessError:
    print("nobody left")
"""


def test_a_guardian_sees_and_reaps_what_is_left_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GUARDIAN],
        capture_output=True,
        timeout=30,
        check=False,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("nobody left\n", "")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("tool", None),
        ("./tool", None),
        ("missing", "adapter_config.command: there is no program missing in PATH"),
        ("./missing", "adapter_config.command: there is no program ./missing"),
        ("./data", "adapter_config.command: ./data is not executable"),
        ("./", "adapter_config.command: there is no program ./"),
    ],
)
def test_a_program_is_found_as_the_agent_would_find_it(
    tmp_path: Path, command: str, problem: str | None
) -> None:
    (tmp_path / "tool").touch(mode=0o755)
    (tmp_path / "data").touch(mode=0o644)
    environment = {"PATH": f"/nowhere:{tmp_path}"}
    if problem is None:
        (program, argument) = runnable([command, "x"], tmp_path, environment)
        assert ((tmp_path / program).resolve(), argument) == (tmp_path / "tool", "x")
        return
    with pytest.raises(NotRunnable) as refused:
        runnable([command], tmp_path, environment)
    assert str(refused.value) == problem


def test_a_folder_that_is_none_is_named_by_its_field(tmp_path: Path) -> None:
    with pytest.raises(NotRunnable) as refused:
        runnable(["tool"], tmp_path / "gone", {})
    assert str(refused.value) == f"adapter_config.cwd: {tmp_path / 'gone'} is not a folder here"
