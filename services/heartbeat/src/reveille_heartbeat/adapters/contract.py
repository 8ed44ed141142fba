"""What an adapter is given, what it may report, and what it returns."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.values import Agent, LogStream, ProcessIdentity, Run

_NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE}
)


class Detached(Exception):
    """The service stops and leaves the agent at work; the next executor finds it."""


def not_started(what: str, error: OSError) -> End:
    """Say that an attempt could not begin: for want of room, which may pass, or for good."""
    kind = EndKind.NO_ROOM if error.errno in _NO_ROOM else EndKind.NOT_STARTED
    return End(kind, message=f"{what}: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that an adapter cannot work with; `field` is a path inside its settings."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What an attempt may use."""

    # Seconds between asking a process to end and ending it.
    kill_grace: float
    output_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class AgentContext:
    """An attempt, as its adapter sees it."""

    run: Run
    agent: Agent
    spool: Spool
    # What agents that read files get in their environment: REVEILLE_*, TRACEPARENT.
    environment: Mapping[str, str]
    # The payload document, for adapters that need no file; empty for others.
    payload: Mapping[str, Any]
    # Must not appear in stored output.
    secrets: Sequence[str]
    limits: Limits
    # Seconds that the process may run, 0 for no limit; kept by the process' own wrapper.
    seconds: int
    # How far each stream is stored already.
    log_ends: Mapping[LogStream, int]
    # An earlier executor began this attempt: find what it started, start nothing.
    resumed: bool
    # Whether a process of this attempt would live where we can see it.
    in_place: bool
    # The attempt is to end: stop the agent and return.
    stop: asyncio.Event
    # The service is to end: leave the agent alone and raise Detached.
    detach: asyncio.Event


@dataclass(frozen=True, slots=True)
class AdapterResult:
    """How it ended, what the agent answered, and what was wrong with the answer if anything.

    Whoever takes it checks the answer, and blanks the agent's secrets out of all of it.
    """

    end: End
    # The object of a result file, with all that the agent has put there.
    answer: Mapping[str, Any] | None = None
    problem: str = ""
    # Seen to its end, with nothing that it started left behind.
    gone: bool = False


class Reporter(Protocol):
    """What an adapter tells while the agent works; each raises LeaseLost when it must stop."""

    async def process(self, identity: ProcessIdentity) -> None:
        """Write down which process it is, before that process may start the agent."""
        ...

    async def log(self, stream: LogStream, start: int, data: bytes) -> None:
        """Store output at its byte offset; whoever cuts it cuts through no secret."""
        ...

    async def event(self, kind: str, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """Add a fact to the run's history, as `adapter.<kind>`; cut to its bounds, not refused."""
        ...

    def progress(self, message: str, *, phase: str = "", tool: str = "", snippet: str = "") -> None:
        """Say what the agent is doing now; of what is said too fast only the last is kept."""
        ...


class Adapter(Protocol):
    """A way to run agents."""

    # Whether an attempt outlives its executor; one that does not is lost with it.
    survives: ClassVar[bool]
    # Whether the agent reads and writes files in the attempt's folder.
    files: ClassVar[bool]

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Judge an agent's settings when they are given."""
        ...

    async def execute(self, context: AgentContext, reporter: Reporter) -> AdapterResult:
        """Run the agent to its end, or find the one that runs already."""
        ...

    async def clear(self, context: AgentContext, reporter: Reporter) -> None:
        """Make sure that nothing of an ended attempt goes on, and all it said is told."""
        ...
