"""Running a command as an agent: started, followed, ended, or found again after a restart.

Settings: `command` (list of texts, no shell), `cwd` (an absolute path; the attempt's own folder by
default), `env` (texts by name; values whose names say secret are blanked out of the stored log).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from reveille_heartbeat.adapters.contract import (
    AdapterResult,
    AgentContext,
    Detached,
    Problem,
    Reporter,
)
from reveille_heartbeat.adapters.left_files import Unreadable
from reveille_heartbeat.adapters.process.child import Child, Spawned, attach, spawn
from reveille_heartbeat.adapters.process.tail import Tail
from reveille_heartbeat.adapters.process.tree import Family, ProcessTrees
from reveille_heartbeat.crash_points import (
    SPAWN_AFTER_GO,
    SPAWN_AFTER_IDENTITY,
    SPAWN_BEFORE_IDENTITY,
)
from reveille_heartbeat.domain.answer import Answer, BadAnswer, read_answer
from reveille_heartbeat.domain.outcome import End, EndKind, last_line
from reveille_heartbeat.domain.redaction import Redactor
from reveille_heartbeat.domain.values import LogStream
from reveille_runtime.crash import crash_point

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
RESERVED = "REVEILLE_"
_FIRST_LOOK = 0.02
_LONGEST_LOOK = 0.25
# What a shell reports when a file grew past its limit: 128 + SIGXFSZ.
_FILE_TOO_LARGE = 153
# Bytes at the end of stderr in which its last line is looked for.
_LAST_WORDS = 16_384


class ProcessAdapter:
    """Local commands."""

    survives: ClassVar[bool] = True
    files: ClassVar[bool] = True

    def __init__(self) -> None:
        self._trees = ProcessTrees()

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Judge the settings."""
        problems = [
            Problem(name, "is not a setting of process")
            for name in sorted(config.keys() - {"command", "cwd", "env"})
        ]
        command = config.get("command")
        if not isinstance(command, list) or not command or not all(_is_word(w) for w in command):
            problems.append(Problem("command", "must be a list of texts, the program first"))
        cwd = config.get("cwd", "/")
        if not _is_word(cwd) or not Path(cwd).is_absolute():
            problems.append(Problem("cwd", "must be an absolute path"))
        env = config.get("env", {})
        if not isinstance(env, Mapping):
            problems.append(Problem("env", "must be texts by name"))
        else:
            for name, value in env.items():
                if not name or "=" in name or "\0" in name or name.startswith(RESERVED):
                    problems.append(Problem(f"env.{name}", "is not a name that can be set"))
                elif not _is_word(value, empty=True):
                    problems.append(Problem(f"env.{name}", "must be a text"))
        return problems

    async def execute(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        """Run the command, or follow the one that an earlier executor has started."""
        tail = Tail(
            context.spool,
            Redactor(context.secrets),
            context.log_ends,
            context.limits.output_bytes,
            reporter,
        )
        child: Child | None
        if context.resumed:
            process = context.run.process
            child = attach(process) if process is not None and context.in_place else None
        else:
            try:
                spawned = _spawn(context)
            except OSError as error:
                message = f"the command could not be started: {error.strerror or error}"
                return AdapterResult(End(EndKind.NOT_STARTED, message=message))
            child = await self._start(spawned, reporter)
        family = Family(
            context.run.run_id, context.run.process if child is None else child.identity
        )
        try:
            if child is not None:
                try:
                    await self._follow(context, child, tail, family)
                finally:
                    child.close()
            if context.in_place:
                # What the agent has left behind ends with it.
                await self._trees.end(family, context.limits.kill_grace)
            await tail.pump(final=True)
            return await asyncio.to_thread(_result, context, over_limit=tail.over_limit)
        except Unreadable as error:
            return AdapterResult(End(EndKind.BROKEN, message=str(error)))

    async def clear(self, context: AgentContext) -> None:
        """End whatever is left, daemons that went their own ways included."""
        if context.in_place:
            family = Family(context.run.run_id, context.run.process)
            await self._trees.end(family, context.limits.kill_grace)

    async def _start(self, spawned: Spawned, reporter: Reporter) -> Child:
        try:
            await self._commit(spawned, reporter)
        except BaseException:
            # The wrapper gets EOF instead of its word, and ends.
            spawned.withdraw()
            spawned.child.close()
            raise
        return spawned.child

    async def _commit(self, spawned: Spawned, reporter: Reporter) -> None:
        crash_point(SPAWN_BEFORE_IDENTITY)
        await reporter.process(spawned.identity)
        crash_point(SPAWN_AFTER_IDENTITY)
        spawned.go()
        crash_point(SPAWN_AFTER_GO)

    async def _follow(
        self, context: AgentContext, child: Child, tail: Tail, family: Family
    ) -> None:
        """Pass output on until the process ends, is to be ended, or is to be left alone."""
        pause = _FIRST_LOOK
        while not child.ended.is_set():
            await _first_of(child.ended, context.stop, context.detach, timeout=pause)
            try:
                heard = await tail.pump()
            except Unreadable:
                await self._trees.end(family, context.limits.kill_grace)
                await child.ended.wait()
                raise
            if child.ended.is_set():
                return
            if context.stop.is_set() or tail.over_limit:
                await self._trees.end(family, context.limits.kill_grace)
                await child.ended.wait()
                return
            if context.detach.is_set():
                raise Detached
            pause = _FIRST_LOOK if heard else min(pause * 2, _LONGEST_LOOK)


def _spawn(context: AgentContext) -> Spawned:
    config = context.agent.adapter_config
    return spawn(
        context.spool,
        list(config["command"]),
        directory=Path(config.get("cwd") or context.spool.work),
        environment=environment(context),
        place=context.run.place,
        seconds=context.seconds,
        grace=context.limits.kill_grace,
        file_bytes=context.limits.file_bytes,
    )


def environment(context: AgentContext) -> dict[str, str]:
    """Build an agent's environment from a list of what is allowed; ours wins over settings."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, **context.agent.adapter_config.get("env", {}), **context.environment}


def _result(context: AgentContext, *, over_limit: bool) -> AdapterResult:
    """Say how it ended, by what the wrapper has left."""
    answer, problem = _answer(context)
    code = context.spool.exit_code()
    largest = max((_size(context, stream) for stream in LogStream), default=0)
    if over_limit or (code is not None and largest >= context.limits.file_bytes):
        limit = min(context.limits.output_bytes, context.limits.file_bytes)
        end = End(EndKind.TOO_MUCH_OUTPUT, code, f"it wrote more than {limit} bytes of output")
    elif context.spool.ran_out:
        end = End(EndKind.RAN_OUT, code)
    elif code == _FILE_TOO_LARGE:
        message = f"it wrote a file larger than {context.limits.file_bytes} bytes"
        end = End(EndKind.TOO_MUCH_OUTPUT, code, message)
    elif code is None and context.resumed and context.run.process is None:
        # The word to start comes after the record of the process.
        end = End(EndKind.LOST, message="its executor ended before the agent was started")
    elif code is None:
        end = End(EndKind.LOST)
    else:
        end = End(EndKind.EXITED, code, _last_words(context) if code != 0 else "")
    return AdapterResult(end, answer, problem)


def _last_words(context: AgentContext) -> str:
    """Give the last line on stderr, where programs say why they fail."""
    data, whole = context.spool.end_of(LogStream.STDERR, _LAST_WORDS)
    return last_line(Redactor(context.secrets).redact_end(data, whole=whole))


def _answer(context: AgentContext) -> tuple[Answer | None, str]:
    try:
        content = context.spool.read_result()
        return (None if content is None else read_answer(content)), ""
    except (BadAnswer, Unreadable) as error:
        return None, str(error)


def _size(context: AgentContext, stream: LogStream) -> int:
    try:
        return context.spool.output(stream).lstat().st_size
    except FileNotFoundError:
        return 0


async def _first_of(*events: asyncio.Event, timeout: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _is_word(value: object, *, empty: bool = False) -> bool:
    return isinstance(value, str) and (empty or value != "") and "\0" not in value
