"""The wrapper alone: nothing starts before the word, and its end is always told."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reveille_heartbeat.adapters.process.child import Spawned, attach, spawn
from reveille_heartbeat.adapters.process.identity import has_ended, is_alive, stat_fields
from reveille_heartbeat.adapters.spool import Spool, SpoolRoot


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(tmp_path / "run")
    made.prepare(b"{}", b"")
    return made


@pytest.fixture
async def started(spool: Spool) -> AsyncIterator[Any]:
    """Start wrappers; whatever they are, their handles are given back."""
    made: list[Spawned] = []

    def start(*command: str, seconds: int = 0, grace: float = 1.0) -> Spawned:
        spawned = spawn(
            spool,
            command,
            directory=spool.work,
            environment={"PATH": "/usr/bin:/bin"},
            place="boot/ns/spool",
            seconds=seconds,
            grace=grace,
            file_bytes=1 << 20,
        )
        made.append(spawned)
        return spawned

    yield start
    for spawned in made:
        spawned.withdraw()
        await asyncio.wait_for(spawned.child.ended.wait(), 10)


def living_in_session(session: int) -> list[int]:
    return [
        pid
        for pid in (int(each.name) for each in Path("/proc").glob("[0-9]*"))
        if (fields := stat_fields(pid)) is not None
        and int(fields[3]) == session
        and not has_ended(fields)
    ]


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


async def ended(spawned: Spawned) -> None:
    async with asyncio.timeout(10):
        await spawned.child.ended.wait()


async def test_without_the_word_the_agent_never_starts(started: Any, spool: Spool) -> None:
    spawned = started("touch", "here")
    spawned.withdraw()
    await ended(spawned)

    assert list(spool.work.iterdir()) == []
    assert spool.exit_code() is None
    assert spool.unstarted
    assert not (spool.root / "identity").exists()
    assert not is_alive(spawned.identity)


async def test_a_wrapper_that_cannot_be_followed_is_not_left_waiting(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        seen.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    seen: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", refuse)
    before = descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        started("true")

    assert descriptors() == before
    assert [stat_fields(pid) for pid in seen] == [None]


async def test_with_the_word_it_runs_and_leaves_its_status(started: Any, spool: Spool) -> None:
    spawned = started("sh", "-c", "echo out; echo err >&2; exit 7")
    spawned.go()
    await ended(spawned)

    assert spool.exit_code() == 7
    identity = (spool.root / "identity").read_text().split()
    assert identity == [
        str(spawned.identity.pid),
        str(spawned.identity.start_ticks),
        "boot/ns/spool",
    ]
    assert (spool.root / "stdout").read_text() == "out\n"
    assert (spool.root / "stderr").read_text() == "err\n"
    assert not spool.ran_out


async def test_a_command_is_never_read_by_a_shell(started: Any, spool: Spool) -> None:
    spawned = started("echo", "$HOME; `ls` \"'\\ *")
    spawned.go()
    await ended(spawned)

    assert (spool.root / "stdout").read_text() == "$HOME; `ls` \"'\\ *\n"


@pytest.mark.parametrize("ignores", [False, True])
async def test_the_time_limit_ends_the_agent_also_one_that_does_not_listen(
    started: Any, spool: Spool, ignores: bool
) -> None:
    code = "import signal\n"
    if ignores:
        code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    spawned = started(sys.executable, "-S", "-c", code + "while True: signal.pause()", seconds=1)
    spawned.go()
    # As if the service had ended: from then on the wrapper keeps the time.
    spawned.withdraw()
    await ended(spawned)

    assert spool.ran_out
    # Killed with its wrapper, nobody is left to write the status.
    assert spool.exit_code() == (None if ignores else 143)


async def test_the_agent_reads_nothing_and_handles_signals_as_usual(
    started: Any, spool: Spool
) -> None:
    code = (
        "import signal, sys\n"
        "print(repr(sys.stdin.read()), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    )
    spawned = started(sys.executable, "-S", "-c", code)
    spawned.go()
    await ended(spawned)

    assert (spool.root / "stdout").read_text() == "'' True\n"


async def test_a_process_is_found_again_by_number_and_start_time(started: Any) -> None:
    spawned = started("true")
    found = attach(spawned.identity)
    assert found is not None
    assert attach(replace(spawned.identity, start_ticks=1)) is None
    spawned.go()
    async with asyncio.timeout(10):
        await found.ended.wait()
    await ended(spawned)
    assert attach(spawned.identity) is None


def test_a_status_that_was_cut_short_is_none(spool: Spool) -> None:
    (spool.root / "exit").write_text("12")
    assert spool.exit_code() is None
    (spool.root / "exit").write_text("12\n")
    assert spool.exit_code() == 12


def test_a_spool_keeps_its_name(tmp_path: Path) -> None:
    first, second = SpoolRoot(tmp_path / "spool"), SpoolRoot(tmp_path / "spool")

    assert first.spool_id == second.spool_id
    assert first.run_ids() == []


async def test_the_time_limit_holds_although_the_agent_took_the_folder_away(
    started: Any, spool: Spool
) -> None:
    spawned = started("sh", "-c", f"rm -rf '{spool.root}'; sleep 600", seconds=1)
    spawned.go()
    spawned.withdraw()
    await ended(spawned)

    assert not is_alive(spawned.identity)


async def test_an_agent_that_was_never_told_to_start_is_told_from_one_that_vanished(
    started: Any, spool: Spool
) -> None:
    spawned = started("true")
    spawned.withdraw()
    await ended(spawned)
    assert (spool.unstarted, spool.exit_code()) == (True, None)


async def test_while_the_service_lives_the_time_is_its_own_matter(
    started: Any, spool: Spool
) -> None:
    spawned = started("sh", "-c", "sleep 1.5; exit 4", seconds=1)
    spawned.go()
    await ended(spawned)
    assert (spool.ran_out, spool.exit_code()) == (False, 4)


async def test_a_time_limit_leaves_nothing_behind(started: Any, spool: Spool) -> None:
    """Neither while the service lives, nor after its end: whoever keeps the time ends, too."""
    going, left_alone = started("true", seconds=3600), started("cat", seconds=3600)
    going.go()
    await ended(going)
    left_alone.go()
    left_alone.withdraw()
    await ended(left_alone)

    for spawned in (going, left_alone):
        # It was told to end just before the wrapper's own end, and is given time to do so.
        for pid in living_in_session(spawned.identity.pid):
            with suppress(ProcessLookupError):
                assert select.select([os.pidfd_open(pid)], [], [], 10)[0], f"{pid} goes on"
        assert living_in_session(spawned.identity.pid) == []


async def test_whoever_keeps_the_time_is_ended_however_new_it_is(tmp_path: Path) -> None:
    """An agent that ends at once meets a timer that has hardly begun; none may be waited for."""
    made = []
    for number in range(30):
        spool = Spool(tmp_path / str(number))
        spool.prepare(b"{}", b"")
        spawned = spawn(
            spool,
            ["/bin/true"],
            directory=spool.work,
            environment={},
            place="boot/ns/spool",
            seconds=3600,
            grace=1.0,
            file_bytes=1 << 20,
        )
        spawned.go()
        made.append(spawned)
    for spawned in made:
        await ended(spawned)
        spawned.withdraw()
