"""A job of a service itself, with one scope and one cadence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from reveille.scheduler.v1 import job_pb2 as pb
from reveille_runtime.validation import to_duration

# Gives facts for the scheduler's ledger; done twice, it has one effect.
Execute = Callable[[], Awaitable[Mapping[str, object]]]
SCOPE_KIND = "global"
SCOPE_ID = "global"
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class OwnJob:
    """One job.

    Attributes:
        handler: The service, by the name the scheduler knows it by.
        missed: An occurrence older than this is not made up for.
        limit: How long it may take.
        attempts: How often it is tried, with the pauses of `backoff` between.
        jitter: By how much the replicas of all services are kept apart.
    """

    name: str
    handler: str
    cadence: timedelta
    execute: Execute
    missed: timedelta
    limit: timedelta
    attempts: int = 1
    backoff: tuple[timedelta, ...] = (_MINUTE,)
    jitter: timedelta = timedelta(0)

    @property
    def job(self) -> pb.Job:
        """Describe it to the scheduler."""
        return pb.Job(
            name=self.name,
            handler=self.handler,
            catch_up=pb.CATCH_UP_LATEST_ONLY,
            catch_up_window=to_duration(self.missed),
            run_timeout=to_duration(self.limit),
            stale_timeout=to_duration(self.limit * 1.5),
            heartbeat_interval=to_duration(timedelta(seconds=30)),
            max_attempts=self.attempts,
            retry_backoff=[to_duration(pause) for pause in self.backoff],
            retry_deadline=to_duration(timedelta(hours=1)),
            jitter=to_duration(self.jitter),
        )

    @property
    def scope(self) -> pb.Scope:
        """Describe its one scope."""
        return pb.Scope(
            job_name=self.name,
            kind=SCOPE_KIND,
            id=SCOPE_ID,
            cadence=to_duration(self.cadence),
            enabled=True,
            revision=1,
        )


def upkeep(handler: str, name: str, execute: Execute) -> OwnJob:
    """Describe work that a service does for itself, once an hour."""
    return OwnJob(
        name=name,
        handler=handler,
        cadence=timedelta(hours=1),
        execute=execute,
        missed=timedelta(days=2),
        limit=10 * _MINUTE,
        attempts=3,
        backoff=(_MINUTE, 10 * _MINUTE),
        jitter=10 * _MINUTE,
    )
