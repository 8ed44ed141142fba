"""What is written to a slow pipe arrives whole, also when the writer is stopped in the middle."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from reveille_runtime import streams
from reveille_testkit.waiting import eventually

LONG = "x" * 120_000
LOG_A_LINE = (
    "from reveille_runtime import logs; logs.configure('autopilot');"
    f"logs.get_logger('a').info({LONG!r}, action='a.b')"
)


def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def held(pipe: IO[bytes]) -> int:
    """Count the bytes that wait in a pipe."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, waiting)
    return waiting[0]


def stop_and_continue(pid: int) -> None:
    """Do as Ctrl-Z and fg: a write that waits ends early and tells how much it took."""
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        (["-m", "reveille_cli.main", LONG, "-o", "json"], "stdout"),
        (["-m", "reveille_cli.main", LONG], "stderr"),
        (["-c", LOG_A_LINE], "stderr"),
    ],
    ids=["an answer", "a message", "a log line"],
)
async def test_nothing_is_lost_when_a_write_is_cut_short(
    command: Sequence[str], stream: str
) -> None:
    with start(command) as child:
        pipe = getattr(child, stream)
        room = fcntl.fcntl(pipe.fileno(), fcntl.F_GETPIPE_SZ)

        async def waiting() -> int:
            return held(pipe)

        await eventually(waiting, "the pipe fills", until=lambda seen: seen >= room)
        stop_and_continue(child.pid)
        said = pipe.read()

    assert said.count(b"x") >= len(LONG)
    assert said.endswith(b"\n")


def test_a_stream_that_is_buffered_or_none_at_all_stays_as_it_is() -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as buffered:
        assert streams.whole(buffered) is buffered
    assert streams.whole(None) is None  # type: ignore[arg-type]  # as without the descriptor
