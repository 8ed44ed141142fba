"""Tell when a schedule fires next, by the functions that planning uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reveille_cron import CronError, parse, zone
from reveille_runtime.db import Database
from reveille_runtime.errors import FailedPrecondition, InvalidArgument, NotFound
from reveille_scheduler.domain.calendar import Calendar, seed_of
from reveille_scheduler.domain.rule import Cadence, CronRule, Once, Rule, timeline, upcoming
from reveille_scheduler.store import jobs, scopes
from reveille_scheduler.usecases.jobs import unknown_job
from reveille_scheduler.usecases.scopes import is_cadence


@dataclass(frozen=True, slots=True)
class Place:
    """The job, and the scope of it, whose delay and jitter a preview shall show."""

    job_name: str
    kind: str
    scope_id: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a schedule does next: each planned instant with when it is due."""

    rule: Rule
    times: tuple[tuple[datetime, datetime], ...]

    @property
    def cron(self) -> str:
        """The expression in its canonical spelling."""
        return str(parse(self.rule.cron)) if isinstance(self.rule, CronRule) else ""

    @property
    def time_zone(self) -> str:
        """The zone it is read in."""
        return zone(self.rule.time_zone or "UTC").key if isinstance(self.rule, CronRule) else ""


class Preview:
    """Looks ahead on a schedule."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(
        self, rule: Rule | None, place: Place | None, after: datetime | None, count: int
    ) -> Outlook:
        """Give up to `count` occurrences after `after`, or after now.

        Without a rule, the stored scope's own is taken.

        Raises:
            InvalidArgument: the rule is refused; the field is named.
            NotFound: there is no such job or scope.
            FailedPrecondition: the scope is planned by its owner.
        """
        async with self._database.session() as tx:
            start = await scopes.now(tx) if after is None else after
            job = None
            if place is not None:
                job = await jobs.get(tx, place.job_name)
                if job is None:
                    raise unknown_job(place.job_name)
                if rule is None:
                    key = (place.job_name, place.kind, place.scope_id)
                    stored = (await scopes.by_key(tx, [key])).get(key)
                    if stored is None or stored.deleted:
                        raise unknown_scope(key)
                    rule = stored.rule
        # An empty expression is refused like any other.
        rule = rule or CronRule("", "")
        if not isinstance(rule, CronRule | Cadence | Once):
            raise planned_by_owner()
        calendar = _calendar(rule)
        if job is not None and place is not None:
            seed = seed_of(place.job_name, place.kind, place.scope_id)
            calendar = Calendar(calendar.line, job.job.schedule_delay, job.job.jitter, seed)
        plans = upcoming(calendar.line, start, count)
        return Outlook(rule, tuple((plan, calendar.due(plan)) for plan in plans))


def _calendar(rule: CronRule | Cadence | Once) -> Calendar:
    if isinstance(rule, Cadence) and not is_cadence(rule.every):
        raise InvalidArgument.of(
            "cadence", "must be whole seconds, from 1 second to 366 days", "OUT_OF_BOUNDS"
        )
    try:
        return Calendar(timeline(rule))
    except CronError as error:
        field = "time_zone" if error.field == "time_zone" else "cron"
        raise InvalidArgument.of(field, str(error), error.reason.upper()) from error


def unknown_scope(key: tuple[str, str, str]) -> NotFound:
    """Make the error for a scope that is not stored."""
    job_name, kind, scope_id = key
    return NotFound(
        "NOT_FOUND",
        f"the job {job_name} has no scope {kind}/{scope_id}",
        {"job_name": job_name, "kind": kind, "scope_id": scope_id},
    )


def planned_by_owner() -> FailedPrecondition:
    """Make the error for a scope without a rule of its own."""
    return FailedPrecondition(
        "WRONG_STATE", "this scope has no rule of its own: its job's owner says what is due"
    )
