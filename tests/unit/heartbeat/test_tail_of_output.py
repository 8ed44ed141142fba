"""An agent's output is passed on once and without secrets, also by one executor after another."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reveille_heartbeat.adapters.process import tail
from reveille_heartbeat.adapters.process.tail import CHUNK, Tail
from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.domain.redaction import Redactor
from reveille_heartbeat.domain.values import LogStream, ProcessIdentity

SECRET = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
# None ends as one begins, so that each has one place.
SMALL = ["ab|abb", "xyzzyx-xyzzy|"]
HUGE = "".join(f"{at:06}" for at in range(CHUNK // 4))


class Killed(BaseException):
    """The executor ends here."""


class Stored:
    """What is stored of stdout, in pieces as the log keeps them; dies before one of them."""

    def __init__(self, piece: int = CHUNK) -> None:
        self.data = b""
        self._piece = piece
        self.pieces_left = -1

    async def log(self, stream: LogStream, start: int, data: bytes) -> None:
        assert (stream, start) == (LogStream.STDOUT, len(self.data))
        for at in range(0, len(data), self._piece):
            if self.pieces_left == 0:
                raise Killed
            self.pieces_left -= 1
            self.data += data[at : at + self._piece]

    async def process(self, identity: ProcessIdentity) -> None:
        raise NotImplementedError

    async def event(self, kind: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        raise NotImplementedError

    def progress(self, message: str, *, phase: str = "", tool: str = "", snippet: str = "") -> None:
        raise NotImplementedError


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def tail_of(spool: Spool, stored: Stored, secrets: list[str]) -> Tail:
    """Follow the output as an executor does that finds so much of it stored."""
    ends = {LogStream.STDOUT: len(stored.data)}
    return Tail(spool, Redactor(secrets), ends, 10 * CHUNK, stored)


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("shown", [1, 6, len(SECRET) - 1])
async def test_a_secret_across_two_pieces_is_not_told_by_who_goes_on_after_the_first(
    spool: Spool, shown: int
) -> None:
    before, after = "a" * (CHUNK - shown), "b" * 100 + SECRET[:9]
    (spool.root / "stdout").write_text(before + SECRET + after)
    stored = Stored()
    stored.pieces_left = 1
    with pytest.raises(Killed):
        await tail_of(spool, stored, [SECRET]).pump()
    assert len(stored.data) == CHUNK

    stored.pieces_left = -1
    await tail_of(spool, stored, [SECRET]).pump(final=True)
    assert stored.data.decode() == before + "*" * len(SECRET) + after


async def test_a_secret_longer_than_a_piece_is_not_told_either(spool: Spool) -> None:
    (spool.root / "stdout").write_text("a" + HUGE + "b")
    stored = Stored()
    for _ in range(3):
        stored.pieces_left = 1
        try:
            await tail_of(spool, stored, [HUGE]).pump(final=True)
        except Killed:
            continue
        break
    assert stored.data.decode() == "a" + "*" * len(HUGE) + "b"


async def test_too_much_output_is_noticed_before_all_that_may_be_is_stored(spool: Spool) -> None:
    """An agent fills a disk faster than its output is stored."""
    (spool.root / "stdout").write_bytes(b"x" * (10 * CHUNK + 1))
    stored = Stored()
    following = tail_of(spool, stored, [])

    await following.pump()
    assert following.over_limit
    assert len(stored.data) < 10 * CHUNK
    await following.pump(final=True)
    assert len(stored.data) == 10 * CHUNK


# Files and a loop for each example: how long that takes is the machine's matter.
@settings(deadline=None)
@given(
    st.lists(st.text("ab|", max_size=9) | st.sampled_from(SMALL) | st.text("xyz", max_size=5)),
    st.lists(st.integers(-1, 3), max_size=12),
    st.integers(1, 40),
)
def test_however_executors_follow_each_other_output_is_what_one_would_have_stored(
    words: list[str], lives: list[int], step: int
) -> None:
    output, stored, redactor = "".join(words), Stored(piece=8), Redactor(SMALL)

    async def follow(stdout: Path) -> None:
        for at, pieces_left in enumerate(lives, 1):
            put(stdout, output[: at * step])
            stored.pieces_left = pieces_left
            with contextlib.suppress(Killed):
                await tail_of(Spool(stdout.parent), stored, SMALL).pump()
        put(stdout, output)
        stored.pieces_left = -1
        await tail_of(Spool(stdout.parent), stored, SMALL).pump(final=True)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "CHUNK", 8)
        asyncio.run(follow(Path(folder) / "stdout"))
    assert stored.data == redactor.redact(output.encode())
