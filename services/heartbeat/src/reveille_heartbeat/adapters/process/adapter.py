"""Running a command as an agent: started, followed, ended, or found again after a restart.

Settings: `command` (list of texts, no shell), `cwd` (an absolute path; the attempt's own folder by
default), `env` (texts by name; values whose names say secret are blanked out of the stored log),
`grace_seconds` (between asking it to end and ending it; the service's own by default).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from reveille_heartbeat.adapters.contract import (
    AdapterResult,
    AgentContext,
    Detached,
    Problem,
    Reporter,
    not_started,
)
from reveille_heartbeat.adapters.left_files import Unreadable
from reveille_heartbeat.adapters.process.child import Child, Spawned, attach, spawn
from reveille_heartbeat.adapters.process.ending import SETTLE_DELAY, result_of
from reveille_heartbeat.adapters.process.orphans import Orphanage
from reveille_heartbeat.adapters.process.programs import NotRunnable, runnable
from reveille_heartbeat.adapters.process.settings import environment, grace, problems_of
from reveille_heartbeat.adapters.process.tail import Tail
from reveille_heartbeat.adapters.process.tree import Family, ProcessTrees
from reveille_heartbeat.crash_points import (
    SPAWN_AFTER_GO,
    SPAWN_AFTER_IDENTITY,
    SPAWN_BEFORE_IDENTITY,
)
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.redaction import Redactor
from reveille_runtime.crash import crash_point

_FIRST_LOOK = 0.05
_LONGEST_LOOK = 0.25
_LATE_LOOKS = 10


class ProcessAdapter:
    """Local commands."""

    survives: ClassVar[bool] = True
    files: ClassVar[bool] = True

    def __init__(self) -> None:
        self._trees = ProcessTrees()
        self._orphanage = Orphanage()

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Judge the settings."""
        return problems_of(config)

    async def execute(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        """Run the command, or follow the one that an earlier executor has started."""
        try:
            if context.resumed:
                return await self._resume(context, reporter)
            return await self._begin(context, reporter)
        except Unreadable as error:
            return AdapterResult(End(EndKind.BROKEN, message=str(error)))

    async def clear(self, context: AgentContext, reporter: Reporter) -> None:
        """End whatever is left, daemons that went their own ways included."""
        if context.in_place:
            await self._end(context, Family(context.run.run_id, context.run.process), reporter)
        with contextlib.suppress(Unreadable):
            await _tail(context, reporter).pump(final=True)

    async def _begin(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        try:
            spawned = _spawn(context)
        except NotRunnable as error:
            return AdapterResult(End(EndKind.NOT_STARTED, message=str(error)))
        except OSError as error:
            return AdapterResult(not_started("the command could not be started", error))
        child = spawned.child
        self._orphanage.awaits(child.identity.pid)
        try:
            crash_point(SPAWN_BEFORE_IDENTITY)
            await reporter.process(spawned.identity)
            crash_point(SPAWN_AFTER_IDENTITY)
            spawned.go()
            crash_point(SPAWN_AFTER_GO)
            tail = _tail(context, reporter)
            stopped = await self._follow(context, child, tail, reporter)
            gone = not stopped and self._orphanage.is_empty()
            if not stopped and not gone:
                # What the agent has left behind ends with it.
                await self._end(context, _family(context, child), reporter)
            await tail.pump(final=True)
            result = await result_of(
                context, watched=True, over_limit=tail.over_limit, wrapper=child.status
            )
            return replace(result, gone=gone)
        finally:
            # A wrapper that has not had the word gets EOF instead, and ends; one that has it goes
            # on, and keeps the time from now on.
            spawned.close()
            self._orphanage.forget(child.identity.pid)

    async def _resume(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        tail = _tail(context, reporter)
        process = context.run.process
        child = attach(process) if process is not None and context.in_place else None
        stopped = False
        if child is not None:
            try:
                stopped = await self._follow(context, child, tail, reporter)
            finally:
                child.close()
        elif process is not None:
            await _late_status(context)
        if context.in_place and not stopped:
            family = Family(context.run.run_id, process, seen=child is not None)
            await self._end(context, family, reporter)
        await tail.pump(final=True)
        return await result_of(context, watched=child is not None, over_limit=tail.over_limit)

    async def _follow(
        self, context: AgentContext, child: Child, tail: Tail, reporter: Reporter
    ) -> bool:
        """Pass output on until the process ends, is to be ended, or is to be left alone.

        Give whether all of it was ended here.
        """
        stopped = False
        with _noticed(child.attention, context.stop, context.detach):
            pause = _FIRST_LOOK
            while not child.ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await child.attention.wait()
                if child.ended.is_set():
                    break
                try:
                    heard = await tail.pump()
                except Unreadable:
                    await self._stop(context, child, reporter)
                    raise
                if context.stop.is_set() or tail.over_limit:
                    await self._stop(context, child, reporter)
                    stopped = True
                    break
                if context.detach.is_set():
                    raise Detached
                pause = _FIRST_LOOK if heard else min(pause * 2, _LONGEST_LOOK)
        if context.detach.is_set() and not context.spool.has_ending:
            # Whoever stops the service may stop everything around it; that is not the agent's end.
            raise Detached
        return stopped

    async def _stop(self, context: AgentContext, child: Child, reporter: Reporter) -> None:
        await self._end(context, _family(context, child), reporter)
        await child.ended.wait()

    async def _end(self, context: AgentContext, family: Family, reporter: Reporter) -> None:
        ended = await self._trees.end(family, grace(context))
        if ended.unreachable:
            pids = [process.pid for process in ended.unreachable]
            await reporter.event(
                "process_unreachable",
                "processes of this run belong to another user, and go on",
                {"pids": pids},
            )


def _family(context: AgentContext, child: Child) -> Family:
    return Family(context.run.run_id, child.identity, seen=True)


def _tail(context: AgentContext, reporter: Reporter) -> Tail:
    return Tail(
        context.spool,
        Redactor(context.secrets),
        context.log_ends,
        context.limits.output_bytes,
        reporter,
    )


def _spawn(context: AgentContext) -> Spawned:
    config = context.agent.adapter_config
    directory = Path(config.get("cwd") or context.spool.work)
    given = environment(context)
    return spawn(
        context.spool,
        runnable(config["command"], directory, given),
        directory=directory,
        environment=given,
        place=context.run.place,
        seconds=context.seconds,
        grace=grace(context),
        file_bytes=context.limits.file_bytes,
    )


async def _late_status(context: AgentContext) -> None:
    """Give a wrapper that was not found a moment to leave its status, on a disk that is slow."""
    for _ in range(_LATE_LOOKS):
        if context.spool.has_ending:
            return
        await asyncio.sleep(SETTLE_DELAY / _LATE_LOOKS)


@contextlib.contextmanager
def _noticed(attention: asyncio.Event, *events: asyncio.Event) -> Iterator[None]:
    """Have the first of several events set another one."""

    async def pass_on(event: asyncio.Event) -> None:
        await event.wait()
        attention.set()

    tasks = [asyncio.ensure_future(pass_on(event)) for event in events]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
