"""Execute what a scope missed in a range, through the claim that retries go through."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from reveille_cron import CronError
from reveille_runtime.carrier import SpanSeed
from reveille_runtime.db import Tx
from reveille_runtime.errors import FailedPrecondition, InvalidArgument
from reveille_runtime.ids import new_id
from reveille_scheduler.domain.backfill import MOST, judge
from reveille_scheduler.domain.rule import Cadence, CronRule, Once, timeline, upcoming
from reveille_scheduler.domain.scope import Scope, ScopeKey
from reveille_scheduler.store import jobs, ledger, scopes
from reveille_scheduler.usecases.jobs import unknown_job
from reveille_scheduler.usecases.preview import planned_by_owner, unknown_scope

_TICK = timedelta(microseconds=1)
_ASKED = "missed; asked for by a backfill"


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill found in its range; `executions` are the new ones, oldest first."""

    new: int
    done: int
    refused: int
    executions: tuple[UUID, ...]


class BackfillScope:
    """Promises missed occurrences. `kept_for` is how far back the ledger can be trusted."""

    def __init__(self, kept_for: timedelta) -> None:
        self._kept_for = kept_for

    async def __call__(self, tx: Tx, key: ScopeKey, start: datetime, end: datetime) -> Backfilled:
        """Promise what was missed from `start` to `end`, both included.

        Raises:
            NotFound: there is no such job or scope.
            FailedPrecondition: the scope is planned by its owner, or its rule fires no more.
            InvalidArgument: the range is empty, too old or too full.
        """
        job = (await jobs.by_name(tx, [key[0]])).get(key[0])
        if job is None:
            raise unknown_job(key[0])
        # Planning waits, so that what it has not passed yet is told from what it missed.
        scope = await scopes.lock(tx, key)
        if scope is None or scope.deleted:
            raise unknown_scope(key)
        now = await scopes.now(tx)
        _judge_range(start, end, now - self._kept_for)
        plans = _plans(scope, start, end)
        verdict = judge(
            plans,
            await ledger.in_range(tx, key, start, end),
            planned_until=await _planned_until(tx, scope, now),
        )
        rows = [(new_id(), plan, SpanSeed.root().carrier()) for plan in verdict.missed]
        # All as of one moment, so that the claim takes the oldest plan first.
        made = (
            await ledger.insert_missed(tx, key, rows, job.max_attempts, _ASKED, now) if rows else ()
        )
        again = await ledger.ask_for_missed(tx, verdict.too_late, now) if verdict.too_late else ()
        promised = tuple(each for each in verdict.too_late if each in again) + tuple(
            each for each, *_ in rows if each in made
        )
        return Backfilled(len(promised), verdict.done, verdict.refused, promised)


def _judge_range(start: datetime, end: datetime, oldest: datetime) -> None:
    if end < start:
        raise InvalidArgument.of("end_time", "lies before start_time", "OUT_OF_BOUNDS")
    if start < oldest:
        raise InvalidArgument.of(
            "start_time",
            f"lies before {oldest:%Y-%m-%dT%H:%M:%SZ}: what ran so long ago is not known any more",
            "OUT_OF_BOUNDS",
        )


def _plans(scope: Scope, start: datetime, end: datetime) -> list[datetime]:
    rule = scope.rule
    if not isinstance(rule, CronRule | Cadence | Once):
        raise planned_by_owner()
    try:
        line = timeline(rule)
    except CronError as error:
        raise FailedPrecondition("WRONG_STATE", f"its rule is not usable: {error}") from error
    plans = [plan for plan in upcoming(line, start - _TICK, MOST + 1) if plan <= end]
    if len(plans) > MOST:
        raise InvalidArgument.of(
            "end_time",
            f"the range holds more than {MOST} occurrences; divide it",
            "OUT_OF_BOUNDS",
        )
    return plans


async def _planned_until(tx: Tx, scope: Scope, now: datetime) -> datetime:
    """Up to where planning has passed: for a scope that is switched off, all of the past."""
    if not scope.enabled:
        return now
    latest = await ledger.latest_plan(tx, scope.key)
    return scope.effective_from if latest is None else max(latest, scope.effective_from)
