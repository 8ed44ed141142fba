"""What an attempt gathers on its way, and what its stages are given to work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from reveille_heartbeat.adapters.contract import Adapter, AdapterResult, Limits
from reveille_heartbeat.adapters.registry import Registry
from reveille_heartbeat.adapters.spool import Spool, SpoolRoot
from reveille_heartbeat.domain.answer import Answer
from reveille_heartbeat.domain.outcome import EndKind, Outcome
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.domain.values import LogStream, Run
from reveille_heartbeat.pipeline.interrupts import Interrupts
from reveille_heartbeat.usecases.runs.agent_signs import AgentSigns
from reveille_heartbeat.usecases.runs.agent_words import AgentWords
from reveille_heartbeat.usecases.runs.finishing import Finisher
from reveille_heartbeat.usecases.runs.held_run import HeldRun
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_heartbeat.usecases.runs.run_log import RunLog
from reveille_heartbeat.usecases.runs.take_over import HandOver
from reveille_runtime.lease import Held, Lease


class SetupFailed(Exception):
    """The attempt cannot begin; the message says why, for the agent's owner."""

    def __init__(self, message: str, kind: EndKind = EndKind.NOT_STARTED) -> None:
        super().__init__(message)
        self.kind = kind


class When(StrEnum):
    """Which attempts a stage is for."""

    ALWAYS = "always"
    # Without a terminal state when they were loaded.
    OPEN = "open"
    # Ended by somebody else, or before a crash: what is left is to be finished.
    ENDED = "ended"


@dataclass(slots=True)
class RunContext:
    """One attempt under way; each stage adds its part and reads only earlier ones."""

    run_id: UUID
    held: Held
    # An earlier executor began it.
    resumed: bool
    stop: asyncio.Event
    detach: asyncio.Event
    # What the claim has read, of an attempt that begins here.
    claimed: Loaded | None = None
    _loaded: Loaded | None = None
    _adapter: Adapter | None = None
    _spool: Spool | None = None
    log_ends: Mapping[LogStream, int] = field(default_factory=dict)
    # What the agent is told, where it does not read that in its folder.
    document: Mapping[str, Any] = field(default_factory=dict)
    result: AdapterResult | None = None
    # What the agent answered, checked and without its secrets.
    answer: Answer | None = None
    # Seconds since the agent was last heard of, where that is not written yet.
    silence: float | None = None
    outcome: Outcome | None = None
    # Its outcome and what follows it are written.
    over: bool = False

    @property
    def lease(self) -> Lease:
        """The fence of every write."""
        return self.held.lease

    @property
    def loaded(self) -> Loaded:
        """The rows, after `load`."""
        if self._loaded is None:
            raise AssertionError("the stage `load` comes first")
        return self._loaded

    @property
    def spool(self) -> Spool:
        """The folder, after `load`."""
        if self._spool is None:
            raise AssertionError("the stage `load` comes first")
        return self._spool

    @property
    def adapter(self) -> Adapter | None:
        """The adapter, after `load`; None when this replica does not have it."""
        return self._adapter

    def begin(
        self,
        loaded: Loaded,
        spool: Spool,
        adapter: Adapter | None,
        log_ends: Mapping[LogStream, int],
    ) -> None:
        """Take what `load` has found."""
        self._loaded, self._spool, self._adapter = loaded, spool, adapter
        self.log_ends = log_ends


@dataclass(frozen=True, slots=True)
class Parts:
    """What stages work with, made once by the wiring."""

    executor: Executor
    held_run: HeldRun
    run_log: RunLog
    signs: AgentSigns
    words: AgentWords
    finisher: Finisher
    interrupts: Interrupts
    hand_over: HandOver
    registry: Registry
    spools: SpoolRoot
    # Bytes of a delivery whose body is too large to travel with its wakeup.
    fetch_body: Callable[[str], Awaitable[bytes]]
    # The token that an attempt's agent calls us with; the same whenever it is asked for.
    run_token: Callable[[Run], str]
    api_address: str
    limits: Limits
    # Had by the one attempt whose large payload is being read and written.
    large_payload: asyncio.Lock = field(default_factory=asyncio.Lock)


StageFunction = Callable[[RunContext, Parts], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the way."""

    name: str
    run: StageFunction
    when: When
