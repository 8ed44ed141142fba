"""Writing what became of runs: under their locks, all of a batch or none, and then the news."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from reveille_autopilot.domain.deadlines import CANCEL_AGAIN, CHECK, CHECK_SOON
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.outcomes import Step, Written, apply_all, hands_back_slot
from reveille_autopilot.domain.states import RUN_TERMINAL, RunState
from reveille_autopilot.store import limits, runs
from reveille_autopilot.usecases.signals import RunSignals
from reveille_autopilot.usecases.summary import RunTracing
from reveille_autopilot.usecases.telling import FEED_CHANNEL, released_event, run_event
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.feed import append
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import LockOrder

RUNS_CHANNEL = "autopilot.runs"
_log = logs.get_logger(__name__)


class Moment(StrEnum):
    """On what occasion runs are written; names the crash points around the commit."""

    LINK = "link"
    COMPLETE = "complete"
    CANCEL = "cancel"
    GIVE_UP = "give_up"


class Settler:
    """The one writer of run states after admission."""

    def __init__(
        self, db: Database, tracing: RunTracing, signals: RunSignals, notifier: Notifier
    ) -> None:
        self._db = db
        self._tracing = tracing
        self._signals = signals
        self._notifier = notifier
        # Has the sweep look at once: at a run that may begin, or at one that shall be cancelled.
        self.wake_sweep: Callable[[], None] = lambda: None

    async def apply(self, steps: Mapping[UUID, Sequence[Step]], moment: Moment) -> dict[UUID, Run]:
        """Apply steps to runs; gives the runs as they stand afterwards.

        A run that has its outcome already keeps it: whoever comes second has succeeded.
        """
        if not steps:
            return {}

        async def write(tx: Tx) -> _Done:
            return await _write(tx, steps, moment)

        # Locked, folded from the rows and compared again: a repeat after an unknown COMMIT finds
        # its own work done.
        done = await retrying_transaction(self._db, write, repeatable=True)
        crash_point(f"autopilot.{moment}.after_commit")
        self.announce(done.ended)
        if done.changed:
            self.tell()
        if done.released:
            self.wake_sweep()
        return done.after

    async def without_given_up(
        self, steps: Mapping[UUID, Sequence[Step]]
    ) -> dict[UUID, Sequence[Step]]:
        """Leave out cancellations of keys with which runs are being given up.

        Written first they would look like somebody's wish, and the occurrence would be lost; the
        sweep writes that it was given up, after which it can be asked for again.
        """
        cancelled = [run_id for run_id, each in steps.items() if any(map(_cancels, each))]
        if not cancelled:
            return dict(steps)
        async with self._db.session() as tx:
            late = await runs.overdue(tx, cancelled)
        kept = {
            run_id: [step for step in each if run_id not in late or not _cancels(step)]
            for run_id, each in steps.items()
        }
        return {run_id: each for run_id, each in kept.items() if each}

    async def release(self, autopilot_ids: Sequence[UUID]) -> None:
        """Let waiting runs begin where nothing else is open, should an end have been missed."""
        if not autopilot_ids:
            return

        async def write(tx: Tx) -> bool:
            await limits.lock_rules(tx, LockOrder(), autopilot_ids)
            return await _release(tx, autopilot_ids)

        if await retrying_transaction(self._db, write, repeatable=True):
            self.tell()
            self.wake_sweep()

    def tell(self) -> None:
        """Say that the feed has news that are committed."""
        self._notifier.notify(FEED_CHANNEL)

    def announce(self, ended: Sequence[Run]) -> None:
        """Tell of runs that got their outcome in a transaction that has been committed."""
        if not ended:
            return
        self._tracing.ended(ended)
        self._signals.tell(run.id for run in ended)
        self._notifier.notify(RUNS_CHANNEL)
        for run in ended:
            _log.info(
                "A run has its outcome.",
                action="run.ended",
                run_id=str(run.id),
                state=run.state.value,
                reason=run.reason,
                occurrence_key=run.occurrence_key,
            )


@dataclass(frozen=True, slots=True)
class _Done:
    """The runs of a batch as they stand, and what happened to them."""

    after: dict[UUID, Run]
    ended: list[Run]
    changed: bool
    released: bool


async def _write(tx: Tx, steps: Mapping[UUID, Sequence[Step]], moment: Moment) -> _Done:
    locks = LockOrder()
    alone: list[UUID] = []
    if any(step.state in RUN_TERMINAL for each in steps.values() for step in each):
        alone = await limits.alone(tx, sorted(steps))
        await limits.lock_rules(tx, locks, alone)
    before = await runs.lock(tx, locks, steps)
    folded = {run_id: apply_all(run, steps[run_id]) for run_id, run in before.items()}
    writes = [
        runs.RunWrite(
            written.run,
            before[run_id].state,
            _look_again(before[run_id], written, steps[run_id]),
            written.ended and hands_back_slot(written.run),
        )
        for run_id, written in folded.items()
        if written.changed or any(step.expect_soon for step in steps[run_id])
    ]
    ends = await runs.write(tx, writes) if writes else {}
    after = {
        run_id: replace(written.run, finished_at=ends.get(run_id, written.run.finished_at))
        for run_id, written in folded.items()
    }
    moved = [run for run_id, run in after.items() if run.state is not before[run_id].state]
    await append(tx, [run_event(run) for run in moved])
    ended = [after[run_id] for run_id, written in folded.items() if written.ended]
    released = bool(alone and ended) and await _release(tx, alone)
    crash_point(f"autopilot.{moment}.before_commit")
    return _Done(after, ended, bool(moved), released)


async def _release(tx: Tx, autopilot_ids: Sequence[UUID]) -> bool:
    """Release under the rules' locks; tells whether a run may begin now."""
    released = await limits.release(tx, autopilot_ids)
    await append(tx, [released_event(run) for run in released])
    return bool(released)


def _cancels(step: Step) -> bool:
    return step.state is RunState.CANCELLED


def _look_again(before: Run, written: Written, steps: Sequence[Step]) -> float | None:
    """Say when the sweep looks at an open run again; None leaves that as it is."""
    if written.run.cancel_requested_at is not None:
        return CANCEL_AGAIN.total_seconds()
    if any(step.expect_soon for step in steps):
        return CHECK_SOON.total_seconds()
    if written.run.state is not before.state:
        return CHECK.total_seconds()
    return None
