"""Deadlines are rows: any replica ends what took too long, was silent too long, or never began."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import DEADLINE_AFTER_COMMIT
from reveille_heartbeat.domain.outcome import span_text
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import RunState, WakeupState
from reveille_heartbeat.domain.values import Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run, to_wakeup
from reveille_heartbeat.usecases.pages import pages
from reveille_heartbeat.usecases.runs.run_spans import RunSpans
from reveille_heartbeat.usecases.wakeups.cancel_wakeups import tell_of_ends
from reveille_heartbeat.usecases.wakeups.ending import (
    Ended,
    end_queued_run,
    end_running_run,
    settle_wakeup,
)
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.isolation import isolated
from reveille_runtime.lease import ExpiryWitness, Lease
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.queries import Query

_ANY_HOLDER = UUID(int=0)


class EnforceDeadlines:
    """Only the terminal write; processes and follow-ups are their holder's."""

    def __init__(
        self, db: Database, notifier: Notifier, spans: RunSpans, silence: ExpiryWitness
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._spans = spans
        self._silence = silence

    async def __call__(self, *, renewals_ok: bool) -> int:
        """Make one round; `renewals_ok` says whether the database answered of late."""
        ended = Ended()
        async for run_id in self._found(Q["past_deadline"]):
            with isolated("deadline", run_id=str(run_id)):
                await self._end_running(run_id, Reason.RUN_TIMEOUT, ended)
        # Silence is the agent's, whoever holds it: a run that is taken over again and again has a
        # new token each time, and must end all the same.
        seen = [Lease(run_id, _ANY_HOLDER) async for run_id in self._found(Q["silent_runs"])]
        # While the database is away nobody can report a sign of life: one look is not enough.
        for lease in self._silence.observe(seen, renewals_ok):
            with isolated("silence", run_id=str(lease.id)):
                await self._end_running(lease.id, Reason.IDLE_TIMEOUT, ended)
        async for run_id in self._found(Q["overdue_queued"]):
            with isolated("start_limit", run_id=str(run_id)):
                await self._end_queued(run_id, ended)
        if ended.runs:
            await tell_of_ends(self._db, self._notifier, self._spans, ended)
        return len(ended.runs)

    async def _found(self, query: Query) -> AsyncIterator[UUID]:
        async for page in pages(self._db, query, "run_id"):
            for row in page:
                yield row["run_id"]

    async def _end_running(self, run_id: UUID, reason: Reason, ended: Ended) -> None:
        silent = reason is Reason.IDLE_TIMEOUT

        async def end(tx: Tx) -> Run | None:
            await tx.fetch(Q["lock_runs"], [run_id])
            limit: timedelta | None = await tx.fetchval(Q["still_past_deadline"], run_id, silent)
            if limit is None:
                return None
            what = "it was silent for longer" if silent else "it ran longer"
            message = f"{what} than its limit of {span_text(limit)}"
            return await end_running_run(tx, run_id, RunState.TIMED_OUT, reason, message)

        run = await retrying_transaction(self._db, end)
        if run is not None:
            crash_point(DEADLINE_AFTER_COMMIT)
            ended.runs.append(run)
            ended.stops = True

    async def _end_queued(self, run_id: UUID, ended: Ended) -> None:
        message = "nobody started it within its start limit"

        async def end(tx: Tx) -> Run | None:
            # From the top: the run is read without a lock, and its end is a compare-and-set.
            run = to_run((await tx.fetch(Q["find_runs"], [run_id]))[0])
            locks = LockOrder()
            await locks.take(tx, Level.AGENT, Q["lock_agents"], [run.agent_id])
            if run.issue_id is not None:
                await locks.take(tx, Level.ISSUE, Q["lock_issues"], [run.issue_id])
            await locks.take(tx, Level.WAKEUP, Q["lock_wakeups"], [run.wakeup_id])
            ended_run = await end_queued_run(tx, run_id, Reason.START_DEADLINE, message)
            if ended_run is not None:
                found = await tx.fetch(Q["find_wakeups"], [run.wakeup_id])
                await settle_wakeup(
                    tx,
                    to_wakeup(found[0]),
                    WakeupState.FAILED,
                    Reason.START_DEADLINE.value,
                    message,
                    None,
                )
            return ended_run

        run = await retrying_transaction(self._db, end)
        if run is not None:
            ended.runs.append(run)
