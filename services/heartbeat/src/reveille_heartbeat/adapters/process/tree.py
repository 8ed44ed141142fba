"""All processes of an attempt, wherever they went, and their end: TERM, a pause, KILL.

A process belongs to an attempt when it is in the wrapper's session, or when its environment names
the run: a daemon may leave its group and its session, not the environment it was started with.
Only a PID namespace of its own would hold one that wipes its environment, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from reveille_heartbeat.adapters.process.identity import is_alive, send, stat_fields
from reveille_heartbeat.domain.values import ProcessIdentity
from reveille_runtime.batcher import Batcher

RUN_VARIABLE = "REVEILLE_RUN_ID"
_POLL = 0.05
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Family:
    """How to recognise an attempt's processes."""

    run_id: UUID
    # The wrapper, which leads the session; None when it is not known.
    leader: ProcessIdentity | None


class ProcessTrees:
    """Finds and ends families. One walk over all processes serves everybody who asks meanwhile."""

    def __init__(self) -> None:
        self._walks: Batcher[Family, list[ProcessIdentity]] = Batcher(
            "process_walk", self._walk, max_in_flight=1
        )

    async def members(self, family: Family) -> list[ProcessIdentity]:
        """List the living processes of an attempt."""
        return await self._walks.submit(family)

    async def end(self, family: Family, grace: float) -> int:
        """End every process of an attempt; give how many there were at first.

        Repeated until none is found: a process may fork while it is being ended.
        """
        found = await self.members(family)
        if not found:
            return 0
        for process in found:
            send(process, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        patience = loop.time() + grace
        left = found
        while left and loop.time() < patience:
            await asyncio.sleep(_POLL)
            left = [process for process in left if is_alive(process)]
            if not left:
                left = await self.members(family)
        while left:
            for process in left:
                send(process, signal.SIGKILL)
            await asyncio.sleep(_POLL)
            left = await self.members(family)
        return len(found)

    async def close(self) -> None:
        """Finish the walks that are asked for."""
        await self._walks.close()

    async def _walk(self, families: Sequence[Family]) -> list[list[ProcessIdentity] | Exception]:
        return await asyncio.to_thread(_walk, families)


def _walk(families: Sequence[Family]) -> list[list[ProcessIdentity] | Exception]:
    by_mark = {
        f"{RUN_VARIABLE}={family.run_id}".encode(): number for number, family in enumerate(families)
    }
    by_session = {
        family.leader.pid: number
        for number, family in enumerate(families)
        if family.leader is not None and _may_lead(family.leader)
    }
    found: list[list[ProcessIdentity] | Exception] = []
    members: list[list[ProcessIdentity]] = [[] for _ in families]
    for entry in os.scandir(_PROC):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        fields = stat_fields(pid)
        if fields is None or fields[0] in (b"Z", b"X"):
            continue
        number = by_session.get(int(fields[3]))
        if number is None:
            number = _marked(pid, by_mark)
        if number is not None:
            members[number].append(ProcessIdentity(pid, int(fields[19])))
    found.extend(members)
    return found


def _may_lead(leader: ProcessIdentity) -> bool:
    """The session is the attempt's unless the leader's number has become another process'."""
    fields = stat_fields(leader.pid)
    return fields is None or int(fields[19]) == leader.start_ticks


def _marked(pid: int, by_mark: dict[bytes, int]) -> int | None:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    if RUN_VARIABLE.encode() not in environment:
        return None
    for variable in environment.split(b"\0"):
        number = by_mark.get(variable)
        if number is not None:
            return number
    return None
