"""Takes an attempt through the stages, and keeps failures inside it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from enum import StrEnum

from reveille_heartbeat.adapters.contract import AdapterResult, Detached
from reveille_heartbeat.domain.outcome import End, EndKind
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.pipeline import STAGES
from reveille_heartbeat.pipeline.context import Parts, RunContext, SetupFailed, When
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_runtime import logs
from reveille_runtime.lease import Lease, LeaseKeeper, LeaseLost
from reveille_runtime.sqlstate import is_transient

_log = logs.get_logger(__name__)


class Left(StrEnum):
    """How a way through the stages ended."""

    DONE = "done"
    # The lease is lost, or the run was ended by somebody else: recovery looks at once.
    LOST = "lost"
    # The database is away, or we failed: recovery takes the run from its rows in its own time.
    INTERRUPTED = "interrupted"
    # The service stops; the agent goes on, and the next start finds it.
    DETACHED = "detached"


class Runner:
    """Runs attempts, each under its lease."""

    def __init__(self, parts: Parts, keeper: LeaseKeeper) -> None:
        self._parts = parts
        self._keeper = keeper

    async def run(
        self,
        run: Run,
        *,
        claimed: Loaded | None,
        since: float,
        stop: asyncio.Event,
        detach: asyncio.Event,
    ) -> Left:
        """Take one attempt to its end; `since` is the keeper's time before the claim was sent.

        `claimed` is what the claim has read; without it an earlier executor began the attempt.
        """
        if run.lease_token is None:
            raise AssertionError("a claimed run has a lease")
        lease = Lease(run.run_id, run.lease_token)
        async with AsyncExitStack() as stack:
            held = await stack.enter_async_context(self._keeper.hold(lease, since=since))
            context = RunContext(run.run_id, held, claimed is None, stop, detach, claimed)
            try:
                # A lost lease ends the work at once; the agent itself is left to its next holder.
                await held.guard(self._stages(context))
            except LeaseLost:
                return Left.LOST
            except Detached:
                return Left.DETACHED
            except Exception as error:  # noqa: BLE001 (the rows are left for recovery)
                self._report(context, error)
                return Left.INTERRUPTED
        return Left.DONE

    async def _stages(self, context: RunContext) -> None:
        ended = False
        for stage in STAGES:
            if (stage.when is When.OPEN and ended) or (stage.when is When.ENDED and not ended):
                continue
            if context.result is not None and stage.name in _BEFORE_RESULT:
                continue
            try:
                await stage.run(context, self._parts)
            except SetupFailed as error:
                context.result = AdapterResult(End(error.kind, message=str(error)))
            except Exception as error:
                if stage.name not in _BEFORE_RESULT or is_transient(error) or _stops(error):
                    raise
                # The outer ring: our own mistake ends this attempt, and is not met again for ever.
                self._report(context, error)
                text = f"the stage {stage.name} failed: {type(error).__name__}"
                context.result = AdapterResult(End(EndKind.NOT_STARTED, message=text))
            if stage.name == "load":
                ended = context.loaded.run.finished_at is not None

    def _report(self, context: RunContext, error: Exception) -> None:
        if is_transient(error):
            _log.warning(
                "The database does not answer; the run is recovered later.",
                action="run.interrupted",
                run_id=str(context.run_id),
                cause=type(error).__name__,
            )
            return
        _log.exception(
            "A stage failed; the run is recovered from its rows.",
            action="run.stage_failed",
            run_id=str(context.run_id),
        )


def _stops(error: Exception) -> bool:
    """Tell what ends the work on an attempt without ending the attempt."""
    return isinstance(error, LeaseLost | Detached)


# A failed set-up has its result, and goes on where results are judged.
_BEFORE_RESULT = frozenset({"checkout", "payload", "execute"})
