"""Starts a program that ends when its owner does, however that went. Run as a script, stdlib only.

It becomes the program: same pid, nothing in between. The kernel sends SIGTERM once the thread that
started us is gone; where the kernel is not Linux, the program just runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
NOT_STARTED = 126


def main() -> int:
    """Tie ourselves to the owner, then turn into the program."""
    owner, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        # Gone before we asked for the signal, it would never come.
        if os.getppid() != owner:
            return NOT_STARTED
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is the purpose of this file
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
