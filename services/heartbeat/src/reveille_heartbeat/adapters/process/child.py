"""One wrapped process: started by us, or found again after a restart; awaited by its handle."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from reveille_heartbeat.adapters.process.identity import open_process, start_ticks
from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.domain.values import ProcessIdentity

# Passed as text: a new release must not change the script under a running shell.
WRAPPER = (
    resources.files("reveille_heartbeat.adapters.process")
    .joinpath("wrapper.sh")
    .read_text(encoding="utf-8")
)
_BLOCK = 512


class Child:
    """A process that can be awaited; `ours` are those that this very process must reap."""

    def __init__(self, identity: ProcessIdentity, handle: int, *, ours: bool) -> None:
        self.identity = identity
        self.ours = ours
        self.ended = asyncio.Event()
        # Set at the end, and by whoever else wants to be noticed by the one that waits for it.
        self.attention = asyncio.Event()
        # With which it exited; None for one that was killed, or is not ours.
        self.status: int | None = None
        self._handle = handle
        asyncio.get_running_loop().add_reader(handle, self._exited)

    def close(self) -> None:
        """Let go of the handle; the process is left as it is."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _exited(self) -> None:
        if self.ours:
            with contextlib.suppress(ChildProcessError):
                left = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
                if left is not None and left.si_code == os.CLD_EXITED:
                    self.status = left.si_status
        self.close()
        self.ended.set()
        self.attention.set()


class Spawned:
    """A wrapper that waits for the word: `go` starts the agent, `withdraw` never does.

    The pipe stays open while this executor lives and looks after the agent: its end tells the
    wrapper to keep the time itself.
    """

    def __init__(self, identity: ProcessIdentity, word: int, child: Child) -> None:
        self.identity = identity
        self.child = child
        self._word = word

    def go(self) -> None:
        """Let the agent start."""
        # A wrapper that somebody has killed meanwhile is seen by its end.
        with contextlib.suppress(BrokenPipeError):
            # It says what reading its own stat would cost a shell half a millisecond to find.
            os.write(self._word, b"go %d\n" % self.identity.start_ticks)

    def withdraw(self) -> None:
        """Close the pipe; without the word before, the wrapper ends and starts nothing."""
        if self._word >= 0:
            os.close(self._word)
            self._word = -1

    def close(self) -> None:
        """Let go of everything; an agent that was started is left as it is."""
        self.withdraw()
        self.child.close()


def spawn(
    spool: Spool,
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    place: str,
    seconds: int,
    grace: float,
    file_bytes: int,
) -> Spawned:
    """Start a wrapper in a session of its own, waiting for the word.

    Raises:
        OSError: no process could be started, or the directory is not there.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                WRAPPER,
                "reveille-agent",
                str(spool.root),
                place,
                str(seconds),
                str(math.ceil(time.time()) + seconds),
                str(max(1, round(grace))),
                str(-(-file_bytes // _BLOCK)),
                *command,
            ],
            cwd=directory,
            env=dict(environment),
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        child = _followed(process.pid)
    except BaseException:
        # It waits for a word that nobody will send, and has started nothing.
        os.close(writing)
        process.kill()
        process.wait()
        raise
    # From here on it is awaited and reaped by its handle alone; Popen must neither wait nor warn.
    process.returncode = 0
    return Spawned(child.identity, writing, child)


def _followed(pid: int) -> Child:
    ticks = start_ticks(pid)
    if ticks is None:
        raise OSError("the process was gone before it could be identified")
    return Child(ProcessIdentity(pid, ticks), os.pidfd_open(pid), ours=True)


def attach(identity: ProcessIdentity) -> Child | None:
    """Find a process again that an earlier executor has started; None when it has ended."""
    handle = open_process(identity)
    return None if handle is None else Child(identity, handle, ours=False)
