"""The stage `execute`: the adapter runs the agent, and what it reports is written down."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reveille_heartbeat.adapters.contract import AdapterResult, AgentContext, Detached
from reveille_heartbeat.adapters.left_files import Unreadable
from reveille_heartbeat.crash_points import EXECUTE_ENDED
from reveille_heartbeat.domain.answer import BadAnswer, answer_of, is_large
from reveille_heartbeat.domain.bounds import MAX_TYPE, bounded, bounded_progress, bounded_text
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.redaction import Redactor, secrets_of
from reveille_heartbeat.domain.values import Agent, LogStream, ProcessIdentity
from reveille_heartbeat.pipeline.context import Parts, RunContext, SetupFailed
from reveille_heartbeat.usecases.runs.log_store import LogChunk
from reveille_runtime import logs
from reveille_runtime.carrier import traceparent
from reveille_runtime.crash import crash_point
from reveille_runtime.isolation import isolated
from reveille_runtime.lease import LeaseLost
from reveille_runtime.lifecycle import TaskScope
from reveille_runtime.sqlstate import is_transient

_log = logs.get_logger(__name__)
_WRAPPER_PATIENCE = 5
# Seconds between signs of life of an agent that may be silent for as long as it likes.
_WITHOUT_LIMIT = 60.0
# Seconds between two writes of what an agent says it is doing.
PROGRESS_PAUSE = 5.0


async def execute(context: RunContext, parts: Parts) -> None:
    """Run the agent, or find the one that runs already."""
    adapter = context.adapter
    if adapter is None:
        raise SetupFailed(f"there is no adapter {context.loaded.agent.adapter} here")
    if context.resumed and not adapter.survives:
        context.result = AdapterResult(End(EndKind.LOST, message="its executor was lost"))
        return
    if context.stop.is_set():
        # Ended from outside before it began: there is nothing to run, and the row has its outcome.
        context.result = AdapterResult(End(EndKind.BROKEN, message="it was ended before it began"))
        return
    context.held.check()
    agent_context = describe(context, parts)
    redact = Redactor(agent_context.secrets).redact_text
    reporter = RunReporter(context, parts, agent_context.secrets)
    reporter.begin()
    try:
        if context.resumed:
            await reporter.take_up()
        work = adapter.execute(agent_context, reporter)
        result = await (work if adapter.survives else parts.interrupts.run(work))
        await _take(context, result, redact)
        context.silence = reporter.silence()
    except Detached:
        with isolated("hand_over", run_id=str(context.run_id)):
            await parts.hand_over(context.lease)
        raise
    except LeaseLost:
        raise
    except Exception as error:
        if error is reporter.outage:
            # The database is away, not the agent: whoever recovers the run finds its process.
            raise
        _log.exception(
            "An adapter failed.",
            action="run.adapter_failed",
            run_id=str(context.run_id),
            adapter=context.loaded.agent.adapter,
        )
        await adapter.clear(agent_context, reporter)
        why = f"the adapter failed: {error}"
        await _take(context, AdapterResult(End(EndKind.BROKEN, message=why)), redact)
    finally:
        await reporter.close()
    crash_point(EXECUTE_ENDED)


async def _take(context: RunContext, result: AdapterResult, redact: Callable[[str], str]) -> None:
    """Take what an adapter brings, whichever it is: no secret of its agent gets past this place.

    What went wrong may be told in the agent's own words, or quote what it was given.
    """
    problem, answer = result.problem, result.answer
    try:
        if answer is not None and is_large(answer):
            context.answer = await asyncio.to_thread(answer_of, answer, redact)
        else:
            context.answer = None if answer is None else answer_of(answer, redact)
    except BadAnswer as error:
        problem = str(error)
    end = replace(result.end, message=redact(result.end.message))
    context.result = replace(result, end=end, answer=None, problem=redact(problem))


def describe(context: RunContext, parts: Parts) -> AgentContext:
    """Put together what the adapter is given."""
    loaded = context.loaded
    run = loaded.run
    configured = loaded.agent.adapter_config.get("env")
    secrets = secrets_of(configured) if isinstance(configured, Mapping) else []
    environment: dict[str, str] = {}
    if context.adapter is None or context.adapter.files:
        # Only what is a process, or becomes one elsewhere, is told; a token costs a signature.
        environment = _environment(context, parts)
        secrets.append(environment["REVEILLE_RUN_TOKEN"])
    return AgentContext(
        run=run,
        agent=loaded.agent,
        spool=context.spool,
        environment=environment,
        payload=context.document,
        secrets=secrets,
        limits=parts.limits,
        seconds=_seconds(loaded.agent),
        log_ends=context.log_ends,
        resumed=context.resumed,
        in_place=run.place == str(parts.executor.place),
        stop=context.stop,
        detach=context.detach,
    )


def _environment(context: RunContext, parts: Parts) -> dict[str, str]:
    """Give the variables by which every agent finds its way."""
    run, spool = context.loaded.run, context.spool
    environment = {
        "REVEILLE_RUN_ID": str(run.run_id),
        "REVEILLE_PAYLOAD_FILE": str(spool.payload),
        "REVEILLE_RESULT_FILE": str(spool.result),
        "REVEILLE_API": parts.api_address,
        "REVEILLE_RUN_TOKEN": parts.run_token(run),
    }
    parent = traceparent(run.agent_carrier)
    if parent is not None:
        environment["TRACEPARENT"] = parent
    return environment


def _seconds(agent: Agent) -> int:
    """The wrapper is the second to act: it counts when no replica enforces the row's deadline."""
    limit = agent.run_timeout.total_seconds()
    return math.ceil(limit) + _WRAPPER_PATIENCE if limit > 0 else 0


class RunReporter:
    """Writes down what an adapter tells, under the lease of its run."""

    def __init__(self, context: RunContext, parts: Parts, secrets: Sequence[str]) -> None:
        self._context = context
        self._parts = parts
        self._redactor = Redactor(secrets)
        self._redact = self._redactor.redact_text
        self._progress: Mapping[str, str] = {}
        self._told = asyncio.Event()
        self._telling = False
        self._background = TaskScope("run reporter")
        self._alive: asyncio.TimerHandle | None = None
        idle = context.loaded.agent.idle_timeout.total_seconds()
        # A sign of life costs a write; a third of the limit is often enough to bring it in time.
        self._every = idle / 3 if idle > 0 else _WITHOUT_LIMIT
        self._heard: float | None = None
        # What kept us from writing, if it may pass. Only by this is the database's absence known
        # from the adapter's own troubles with files and connections.
        self.outage: Exception | None = None

    def begin(self) -> None:
        """Bring signs of life from now on; who ends before the first is due needs none."""
        self._alive = asyncio.get_running_loop().call_later(self._every, self._live_on)

    async def close(self) -> None:
        """Bring no more of them."""
        if self._alive is not None:
            self._alive.cancel()
        await self._background.close()

    async def take_up(self) -> None:
        """Tell when the agent was last heard of, while nobody was there to tell it."""
        silence = self._silence_of_files()
        if silence is not None:
            with self._writing():
                await self._parts.signs.heard(self._context.lease, silence)

    async def process(self, identity: ProcessIdentity) -> None:
        """Commit which process it is."""
        self._context.held.check()
        with self._writing():
            await self._parts.signs.process(self._context.lease, identity)

    async def log(self, stream: LogStream, start: int, data: bytes) -> None:
        """Store output, and take it as a sign of life."""
        self._context.held.check()
        # Of a secret that comes in two pieces only the adapter knows.
        chunk = LogChunk(self._context.lease, stream, start, self._redactor.redact(data))
        with self._writing():
            await self._parts.run_log.append(chunk)
        self._heard = time.monotonic()

    async def event(self, kind: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """Add to the run's history, and take it as a sign of life."""
        self._context.held.check()
        kept: dict[str, Any] = bounded(facts or {}, self._redact)
        with self._writing():
            await self._parts.words.event(
                self._context.lease,
                bounded_text(f"adapter.{kind}", MAX_TYPE),
                bounded_text(self._redact(message)),
                kept,
            )
        self._heard = time.monotonic()

    def progress(self, message: str, *, phase: str = "", tool: str = "", snippet: str = "") -> None:
        """Say what the agent is doing now."""
        parts = {"phase": phase, "message": message, "tool": tool, "snippet": snippet}
        self._progress = bounded_progress(parts, self._redact)
        self._told.set()
        if not self._telling:
            self._telling = True
            self._background.spawn(self._keep_told())

    def silence(self) -> float | None:
        """Give the seconds since the last sign of life, if that was not brought yet."""
        return None if self._heard is None else self._since(self._heard)

    def _since(self, heard: float) -> float:
        """Give the seconds since the last output, which may be older than our storing of it."""
        silence = self._silence_of_files() if self._context.resumed else None
        return time.monotonic() - heard if silence is None else silence

    def _silence_of_files(self) -> float | None:
        try:
            last = self._context.spool.last_output()
        except Unreadable:
            # Whoever reads its output will say so.
            return None
        return None if last is None else max(0.0, time.time() - last)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_transient(error):
                self.outage = error
            raise

    async def _keep_told(self) -> None:
        """Bring the last word on what the agent is doing, at most every few seconds."""
        while True:
            await self._told.wait()
            self._told.clear()
            try:
                await self._parts.words.progress(self._context.lease, self._progress)
            except Exception as error:
                if not is_transient(error):
                    raise
                self._told.set()
            await asyncio.sleep(PROGRESS_PAUSE)

    def _live_on(self) -> None:
        self._background.spawn(self._keep_alive())

    async def _keep_alive(self) -> None:
        """Bring the last sign of life now and then; a failure is made good by the next one."""
        while True:
            heard, self._heard = self._heard, None
            if heard is not None:
                try:
                    await self._parts.signs.heard(self._context.lease, self._since(heard))
                except Exception as error:
                    if not is_transient(error):
                        raise
                    self._heard = self._heard or heard
            await asyncio.sleep(self._every)
