"""Writing what became of runs: under their locks, all of a batch or none, and then the news."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from reveille_autopilot.domain.deadlines import CANCEL_AGAIN, CHECK, CHECK_SOON
from reveille_autopilot.domain.models import Run
from reveille_autopilot.domain.outcomes import Step, Written, apply_all
from reveille_autopilot.domain.states import Reason
from reveille_autopilot.store import runs
from reveille_autopilot.usecases.signals import RunSignals
from reveille_autopilot.usecases.summary import RunTracing
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
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

    async def apply(self, steps: Mapping[UUID, Sequence[Step]], moment: Moment) -> dict[UUID, Run]:
        """Apply steps to runs; gives the runs as they stand afterwards.

        A run that has its outcome already keeps it: whoever comes second has succeeded.
        """
        if not steps:
            return {}

        async def write(tx: Tx) -> tuple[dict[UUID, Run], list[Run]]:
            return await _write(tx, steps, moment)

        # Locked, folded from the rows and compared again: a repeat after an unknown COMMIT finds
        # its own work done.
        after, ended = await retrying_transaction(self._db, write, repeatable=True)
        crash_point(f"autopilot.{moment}.after_commit")
        self.announce(ended)
        return after

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


async def _write(
    tx: Tx, steps: Mapping[UUID, Sequence[Step]], moment: Moment
) -> tuple[dict[UUID, Run], list[Run]]:
    before = await runs.lock(tx, LockOrder(), steps)
    folded = {run_id: apply_all(run, steps[run_id]) for run_id, run in before.items()}
    writes = [
        runs.RunWrite(
            written.run,
            before[run_id].state,
            _look_again(before[run_id], written, steps[run_id]),
            written.ended and written.run.reason == Reason.DISPATCH_INCOMPLETE,
        )
        for run_id, written in folded.items()
        if written.changed or any(step.expect_soon for step in steps[run_id])
    ]
    ends = await runs.write(tx, writes) if writes else {}
    crash_point(f"autopilot.{moment}.before_commit")
    after = {
        run_id: replace(written.run, finished_at=ends.get(run_id, written.run.finished_at))
        for run_id, written in folded.items()
    }
    return after, [after[run_id] for run_id, written in folded.items() if written.ended]


def _look_again(before: Run, written: Written, steps: Sequence[Step]) -> float | None:
    """Say when the sweep looks at an open run again; None leaves that as it is."""
    if written.run.cancel_requested_at is not None:
        return CANCEL_AGAIN.total_seconds()
    if any(step.expect_soon for step in steps):
        return CHECK_SOON.total_seconds()
    if written.run.state is not before.state:
        return CHECK.total_seconds()
    return None
