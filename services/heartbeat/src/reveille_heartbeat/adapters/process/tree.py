"""All processes of an attempt, wherever they went, and their end: TERM, a pause, KILL.

A process belongs to an attempt when it is in the wrapper's session, or when its environment names
the run: a daemon may leave its group and its session, not the environment it was started with.
Only a PID namespace of its own would hold one that wipes its environment, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from reveille_heartbeat.adapters.process.identity import (
    Sent,
    has_ended,
    is_alive,
    read_proc,
    send,
    stat_fields,
)
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_runtime.batcher import Batcher

RUN_VARIABLE = "REVEILLE_RUN_ID"
_MARK = RUN_VARIABLE.encode() + b"="
_FIRST_POLL = 0.02
_LONGEST_POLL = 0.2
# Walks take at most this part of the time: they hold up everything else that Python does.
_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Family:
    """How to recognise an attempt's processes."""

    run_id: UUID
    # The wrapper, which leads the session; None when it is not known.
    leader: ProcessIdentity | None
    # We saw the leader alive: while we look, its number cannot become another session's.
    seen: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a family: how many it had, and those that are beyond our reach."""

    found: int = 0
    unreachable: tuple[ProcessIdentity, ...] = ()


class ProcessTrees:
    """Finds and ends families. One walk over all processes serves everybody who asks meanwhile."""

    def __init__(self) -> None:
        self._walks: Batcher[Family, list[ProcessIdentity]] = Batcher(
            "process_walk", self._walk, max_in_flight=1
        )
        self._next_walk = 0.0

    async def members(self, family: Family) -> list[ProcessIdentity]:
        """List the living processes of an attempt."""
        return await self._walks.submit(family)

    async def end(self, family: Family, grace: float) -> Ended:
        """End every process of an attempt.

        Repeated until none is found: a process may fork while it is being ended. One that is
        another user's by now cannot be ended from here, and is not waited for.
        """
        if family.leader is not None and is_alive(family.leader):
            family = replace(family, seen=True)
        found = await self.members(family)
        if not found:
            return Ended()
        refused = _signal(found, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        patience = loop.time() + grace
        left = [process for process in found if process not in refused]
        pause = _FIRST_POLL
        while left and loop.time() < patience:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_POLL)
            left = [process for process in left if is_alive(process)]
            if not left:
                left = await self._others(family, refused)
        pause = _FIRST_POLL
        while left:
            refused |= _signal(left, signal.SIGKILL)
            await asyncio.sleep(pause)
            # Only a process that waits for its disk outlives this; its slot is not free before.
            pause = min(pause * 2, _LONGEST_POLL)
            left = await self._others(family, refused)
        return Ended(len(found), tuple(sorted(filter(is_alive, refused), key=lambda p: p.pid)))

    async def close(self) -> None:
        """Finish the walks that are asked for."""
        await self._walks.close()

    async def _others(self, family: Family, refused: set[ProcessIdentity]) -> list[ProcessIdentity]:
        return [process for process in await self.members(family) if process not in refused]

    async def _walk(self, families: Sequence[Family]) -> list[list[ProcessIdentity] | Exception]:
        await asyncio.sleep(max(0.0, self._next_walk - time.monotonic()))
        began = time.monotonic()
        found = await asyncio.to_thread(_walk, families)
        ended = time.monotonic()
        self._next_walk = ended + (ended - began) / _SHARE
        return found


def marked_runs() -> dict[UUID, list[ProcessIdentity]]:
    """List all living processes that carry the mark of a run, whichever run it is."""
    found: dict[UUID, list[ProcessIdentity]] = {}
    for pid in _pids():
        run_id = _run_of(_mark_of(pid))
        fields = stat_fields(pid) if run_id is not None else None
        if run_id is not None and fields is not None and not has_ended(fields):
            found.setdefault(run_id, []).append(ProcessIdentity(pid, int(fields[19])))
    return found


def _signal(processes: Sequence[ProcessIdentity], number: signal.Signals) -> set[ProcessIdentity]:
    """Signal them all; give those that may not be."""
    return {process for process in processes if send(process, number) is Sent.REFUSED}


def _walk(families: Sequence[Family]) -> list[list[ProcessIdentity] | Exception]:
    by_mark = {str(family.run_id).encode(): number for number, family in enumerate(families)}
    by_session: dict[int, int] = {}
    proven = {number for number, family in enumerate(families) if family.seen}
    for number, leader in enumerate(family.leader for family in families):
        if leader is None:
            continue
        fields = stat_fields(leader.pid)
        if fields is None or int(fields[19]) == leader.start_ticks:
            by_session[leader.pid] = number
        if fields is not None:
            proven.add(number)
    # What began before its wrapper is nobody's descendant.
    oldest = min(0 if each.leader is None else each.leader.start_ticks for each in families)
    marked: list[list[ProcessIdentity]] = [[] for _ in families]
    beside: list[list[ProcessIdentity]] = [[] for _ in families]
    for pid in _pids():
        fields = stat_fields(pid)
        if fields is None or has_ended(fields) or int(fields[19]) < oldest:
            continue
        process, session = ProcessIdentity(pid, int(fields[19])), int(fields[3])
        named = by_mark.get(_mark_of(pid))
        if named is not None:
            marked[named].append(process)
            if by_session.get(session) == named:
                proven.add(named)
        elif session in by_session:
            beside[by_session[session]].append(process)
    # A number that was free for a while may lead another session now; one that our agents are in
    # was never free.
    return [
        marked[number] + (beside[number] if number in proven else [])
        for number in range(len(families))
    ]


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _mark_of(pid: int) -> bytes:
    """Give the run that a process' environment names; empty when it names none."""
    environment = read_proc(f"/proc/{pid}/environ")
    if _MARK not in environment:
        return b""
    for variable in environment.split(b"\0"):
        if variable.startswith(_MARK):
            return variable.removeprefix(_MARK)
    return b""


def _run_of(mark: bytes) -> UUID | None:
    try:
        return UUID(mark.decode("ascii"))
    except ValueError:
        return None
