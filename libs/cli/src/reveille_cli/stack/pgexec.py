"""Become somebody whom PostgreSQL accepts, then run one of its programs. A script, stdlib only.

PostgreSQL refuses root. `namespace` enters a user namespace in which the owner of our own files is
called by another number: nothing on disk changes hands. `user` gives root up for good. `self`
changes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

_CLONE_NEWUSER = 0x10000000
UNREACHABLE = 77
_GRACE_SECONDS = 20.0


def enter_namespace(uid: int, gid: int) -> None:
    """Let the kernel know us by our own id, and everyone inside by `uid`."""
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
    # Without this the kernel refuses the map of an unprivileged caller.
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1", encoding="ascii")


def drop_to(uid: int, gid: int) -> None:
    """Give up root, groups first: afterwards it could not be done."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def run_for_owner(command: list[str], owner_pid: int) -> int:
    """Run the server as long as another process lives: a killed owner leaves none behind."""
    try:
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        return 1
    child = subprocess.Popen(command, close_fds=False)
    exited = os.pidfd_open(child.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    ready, _, _ = select.select([owner, exited], [], [])
    if exited not in ready:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
        if child.poll() is None:
            child.send_signal(signal.SIGQUIT)
    return child.wait()


def main() -> int:
    """Parse, become, and turn into the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--identity", choices=("self", "namespace", "user"), required=True)
    parser.add_argument("--uid", type=int, default=0)
    parser.add_argument("--gid", type=int, default=0)
    parser.add_argument("--owner-pid", type=int, default=0)
    parser.add_argument("--need-dir", default="")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    os.umask(0o077)
    if arguments.identity == "namespace":
        enter_namespace(arguments.uid, arguments.gid)
    elif arguments.identity == "user":
        drop_to(arguments.uid, arguments.gid)
    command: list[str] = arguments.command
    if arguments.need_dir:
        # Judged by the program's own eyes: exec first, since /proc/self is root's until then.
        probe = ["/bin/sh", "-c", 'test -w "$0" && cd "$0" && exec "$@"', arguments.need_dir]
        completed = subprocess.run([*probe, *command], close_fds=False, check=False)
        return UNREACHABLE if completed.returncode else 0
    if arguments.owner_pid:
        return run_for_owner(command, arguments.owner_pid)
    return turn_into(command)


def turn_into(command: list[str]) -> NoReturn:
    """Leave this program for the server's: one process less, and signals reach it directly."""
    os.execv(command[0], command)  # noqa: S606 - that is the purpose of this file


if __name__ == "__main__":
    sys.exit(main())
