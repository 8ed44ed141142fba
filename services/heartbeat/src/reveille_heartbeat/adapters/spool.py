"""The spool: per attempt a folder in which an agent finds its payload and leaves what it made.

It outlives the service, so the output and the true end of a process that went on meanwhile are
found there. Everything is 0700 and 0600: payloads are other people's data. What the agent can
reach is read as `left_files` does it, and raises Unreadable when it is no file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from reveille_heartbeat.adapters.left_files import read_end, read_from, status_of
from reveille_heartbeat.adapters.removal import remove_tree
from reveille_heartbeat.domain.answer import MAX_BYTES
from reveille_heartbeat.domain.values import LogStream

_SPOOL_ID = "spool-id"
# A status has three digits and a line end; what is longer was not written by the wrapper.
_STATUS_BYTES = 16
_LARGEST_STATUS = 255
# What we, and the wrapper, put there.
_KNOWN = frozenset(
    {
        *("payload.json", "payload.body", "result.json", "work"),
        *("identity", "stdout", "stderr", "exit", "ran_out", "unstarted"),
    }
)


@dataclass(frozen=True, slots=True)
class Spool:
    """One attempt's folder."""

    root: Path

    @property
    def payload(self) -> Path:
        """The payload document."""
        return self.root / "payload.json"

    @property
    def body(self) -> Path:
        """The payload's body as it came."""
        return self.root / "payload.body"

    def body_path(self, body: bytes) -> str:
        """Say where an agent reads the body; one without bytes needs no file made for it."""
        return str(self.body) if body else os.devnull

    @property
    def result(self) -> Path:
        """What the agent may write."""
        return self.root / "result.json"

    @property
    def work(self) -> Path:
        """Where the agent starts unless its settings say otherwise."""
        return self.root / "work"

    def prepare(self, payload: bytes, body: bytes) -> None:
        """Write what the agent gets to read.

        A crash on the way needs no care: an attempt whose agent was not started is repeated under
        another id.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.work.mkdir(mode=0o700, exist_ok=True)
        if body:
            _write(self.body, body)
        _write(self.payload, payload)

    def read_result(self) -> bytes | None:
        """Give the result file, cut just past what is accepted; None when there is none."""
        return read_from(self._at("result.json"), "the result file", 0, MAX_BYTES + 1)

    def read_output(self, stream: LogStream, start: int, size: int) -> bytes:
        """Give output from an offset on; empty when there is none yet."""
        return read_from(self._at(stream.value), f"the file of {stream.value}", start, size) or b""

    def output_size(self, stream: LogStream) -> int:
        """Give how much output there is."""
        status = status_of(self._at(stream.value), f"the file of {stream.value}")
        return 0 if status is None else status.st_size

    def last_output(self) -> float | None:
        """Give when the agent was last heard of, in seconds since 1970: written to, or begun."""
        times = [
            status.st_mtime
            for name in (*(stream.value for stream in LogStream), "identity")
            if (status := status_of(self._at(name), f"the file of {name}")) is not None
        ]
        return max(times, default=None)

    def end_of(self, stream: LogStream, size: int) -> tuple[bytes, bool]:
        """Give the last bytes of a stream of output, and whether there are none before them."""
        return read_end(self._at(stream.value), f"the file of {stream.value}", size)

    def exit_code(self) -> int | None:
        """Give the status that the wrapper left; None when it left none, or an agent forged it."""
        text = read_from(self._at("exit"), "the file of the exit status", 0, _STATUS_BYTES) or b""
        # Without its line end the write was cut short.
        if not (text.endswith(b"\n") and text.strip().isdigit()):
            return None
        code = int(text)
        return code if code <= _LARGEST_STATUS else None

    @property
    def has_ending(self) -> bool:
        """Whether anything tells how the attempt ended."""
        return self.ran_out or self.unstarted or os.path.lexists(self._at("exit"))

    @property
    def ran_out(self) -> bool:
        """Whether the wrapper ended the agent for its time."""
        return os.path.lexists(self._at("ran_out"))

    @property
    def unstarted(self) -> bool:
        """Whether the wrapper ended because nobody told it to start the agent."""
        return os.path.lexists(self._at("unstarted"))

    def remove_known(self) -> bool:
        """Delete the folder if the agent has left nothing of its own in it; tell whether."""
        try:
            with os.scandir(self.root) as entries:
                names = {entry.name for entry in entries}
            if not names <= _KNOWN:
                return False
            for name in names - {"work"}:
                (self.root / name).unlink()
            self.work.rmdir()
            self.root.rmdir()
        except OSError:
            return False
        return True

    def remove(self) -> OSError | None:
        """Delete the folder; give what kept some of it, for an agent may have left anything."""
        return remove_tree(self.root)

    def _at(self, name: str) -> str:
        """A bare text: these paths are used far more often than looked at."""
        return f"{self.root}/{name}"


class SpoolRoot:
    """All attempts' folders, and the name of the disk they are on."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.spool_id = _spool_id(self._root)

    def of(self, run_id: UUID) -> Spool:
        """Give an attempt's folder."""
        return Spool(self._root / str(run_id))

    def run_ids(self) -> list[UUID]:
        """List the attempts that have a folder."""
        found = []
        for entry in os.scandir(self._root):
            with contextlib.suppress(ValueError):
                found.append(UUID(entry.name))
        return found


def _spool_id(root: Path) -> str:
    """Read the disk's name, giving it one if it has none; the first of several wins."""
    path = root / _SPOOL_ID
    draft = root / f".{_SPOOL_ID}.{uuid4()}"
    _write(draft, f"{uuid4()}\n".encode())
    try:
        # A link appears whole or not at all, and never over another one.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
