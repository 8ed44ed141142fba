"""Removing a folder in which an agent may have left anything.

It may be deeper than a recursion goes or descriptors reach, and locked. So whatever folder is not
empty is moved up, to right below the top, and emptied there: that needs no stack, half a dozen
descriptors, and goes on where it was interrupted. Everything is reached by its bare name in a
folder that is held open, and no link is followed; whoever swaps one in meanwhile loses the link.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from uuid import uuid4

_SEEN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# How file systems say that a folder is not empty.
_FULL = (errno.ENOTEMPTY, errno.EEXIST)


def remove_tree(path: Path) -> OSError | None:
    """Delete what is at a path, and all of it that can be; give what kept some of it."""
    try:
        above = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _remove(above, path.name)
        finally:
            os.close(above)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def _remove(above: int, name: str) -> None:
    if _discarded(above, name):
        return
    top = _opened(above, name)
    try:
        refusal = _Emptying(top).run()
    finally:
        os.close(top)
    if refusal is not None:
        raise refusal
    os.rmdir(name, dir_fd=above)


class _Emptying:
    """The top folder, while everything in it is deleted."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._changed = False
        self._refusal: OSError | None = None

    def run(self) -> OSError | None:
        """Look through it as long as that changes anything; give what refused at last."""
        while True:
            self._changed, self._refusal = False, None
            self._empty(self._top)
            if not self._changed:
                return self._refusal

    def _empty(self, folder: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    self._remove(folder, entry.name)
                    self._changed = True
                except FileNotFoundError:
                    # Somebody else removes it, too.
                    pass
                except OSError as error:
                    # The first says why; that a folder is not empty follows from it.
                    self._refusal = self._refusal or error

    def _remove(self, folder: int, name: str) -> None:
        if _discarded(folder, name):
            return
        if folder != self._top:
            self._lift(folder, name)
            return
        opened = _opened(folder, name)
        try:
            self._empty(opened)
        finally:
            os.close(opened)
        os.rmdir(name, dir_fd=folder)

    def _lift(self, folder: int, name: str) -> None:
        """Move a folder to right below the top, where a later look finds it."""
        beside = uuid4().hex
        try:
            os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            # Moving a folder writes to it: its parent changes.
            os.close(_opened(folder, name))
            os.rename(name, beside, src_dir_fd=folder, dst_dir_fd=self._top)


def _discarded(folder: int, name: str) -> bool:
    """Delete a file, a link or an empty folder; tell whether it was one of them.

    Asked first of every folder, because a place where something is mounted refuses: nothing of
    another file system is deleted.
    """
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise
    return True


def _opened(folder: int, name: str) -> int:
    """Open a folder, and unlock it if it is ours; what counts is what was opened, not its name."""
    seen = os.open(name, _SEEN, dir_fd=folder)
    try:
        status = os.fstat(seen)
        locked = status.st_mode & stat.S_IRWXU != stat.S_IRWXU
        if locked and status.st_uid == os.geteuid():
            # By way of the descriptor, since one that may not be read cannot be given to fchmod.
            Path(f"/proc/self/fd/{seen}").chmod(stat.S_IRWXU)
        return os.open(".", _READ, dir_fd=seen)
    finally:
        os.close(seen)
