"""Plan scopes whose job's owner says what is due.

The owner is asked outside any transaction: the scopes are put aside for a while first, and what
it answers is recorded only for those that nobody changed meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from reveille.scheduler.v1 import execution_pb2
from reveille.scheduler.v1 import job_handler_service_pb2 as pb
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.errors import (
    DomainError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from reveille_runtime.rpc_errors import as_domain_errors
from reveille_runtime.validation import to_timestamp
from reveille_scheduler import crash_points
from reveille_scheduler.domain.job import Job
from reveille_scheduler.domain.occurrence import Claim
from reveille_scheduler.domain.planning import ASK_SOON, Occurrence, Planner
from reveille_scheduler.domain.scope import Scope, ScopeKey
from reveille_scheduler.store import executions, jobs, scopes
from reveille_scheduler.store.scopes import AskedScope, Move
from reveille_scheduler.usecases.hand_over import Handler
from reveille_scheduler.usecases.recording import MOST_RECORDED, Recorder

# How long an owner may think; another replica asks only after longer than that.
PATIENCE_SECONDS = 10.0
PUT_ASIDE = timedelta(seconds=30)
# A divided question has half the patience, down to this. None is asked for longer than that: it is
# over before the scopes can be taken again.
LEAST_PATIENCE_SECONDS = 1.0
ASKED_FOR_SECONDS = 29.0
# Questions of one batch that may be at its owner at once; as many again about single scopes that it
# had no answer about before, which would keep the others' waiting.
MOST_CALLS = 8
# For how long a scope is kept apart that is asked about no more, deleted or not.
KEPT_APART_SECONDS = 3600.0
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AskedBatch:
    """Scopes that were put aside, and the question about them."""

    job: Job
    asked: tuple[AskedScope, ...]
    request: pb.PlanScopesRequest


@dataclass(frozen=True, slots=True)
class Said:
    """What an owner said of one scope: nothing, unless it did."""

    plan_times: tuple[datetime, ...] = ()
    ask_again: datetime | None = None


# By kind and id, those that the owner was asked about in a call that it answered.
Answers = dict[tuple[str, str], Said]


class PlanHooks:
    """Takes due hook scopes; asks their owner; records what it answers."""

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        runner: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._runner = runner
        self._monotonic = monotonic
        # Scopes that their owner had no answer about, although it was asked about each alone, and
        # when that was.
        self._apart: dict[ScopeKey, float] = {}

    async def take(self, job_name: str, limit: int) -> AskedBatch | None:
        """Put at most `limit` due scopes aside; None when there are none."""
        async with self._database.transaction() as tx:
            job = (await jobs.by_name(tx, [job_name])).get(job_name)
            if job is None:
                return None
            asked = await scopes.take_hooks(tx, job_name, limit, job.plans_per_scope, PUT_ASIDE)
            if not asked:
                return None
            latest = await scopes.latest(tx, [each.row_id for each in asked])
            now = await scopes.now(tx)
        crash_point(crash_points.AFTER_HOOK_TAKEN)
        request = pb.PlanScopesRequest(job_name=job_name, now=to_timestamp(now))
        for each in asked:
            question = request.scopes.add(kind=each.kind, id=each.scope_id)
            if (row := latest.get(each.row_id)) is not None:
                question.latest_plan_time.FromDatetime(row["plan_time"])
                question.latest_state = execution_pb2.ExecutionState.Value(
                    f"EXECUTION_STATE_{row['state'].upper()}"
                )
                question.latest_attempt = row["attempt"]
                question.latest_max_attempts = row["max_attempts"]
                if row["next_retry_at"] is not None:
                    question.latest_next_retry_time.FromDatetime(row["next_retry_at"])
        return AskedBatch(job, tuple(asked), request)

    async def ask(self, batch: AskedBatch, begin: Callable[[list[Claim]], None]) -> None:
        """Ask the owner, and begin what is due as it answers; the silent ones stay put aside.

        A question that one scope keeps it from answering is asked half by half, and the next time
        that scope is asked about by itself.
        """
        handler = self._handlers.get(batch.job.handler)
        if handler is None:
            _log.warning(
                "No such handler is configured here.",
                action="hook.no_handler",
                job=batch.job.name,
                handler=batch.job.handler,
            )
            return
        until = self._monotonic() + ASKED_FOR_SECONDS
        silent: list[pb.HookScope] = []
        causes: list[str] = []

        async def settle(
            request: pb.PlanScopesRequest, patience: float, calls: asyncio.Semaphore
        ) -> None:
            try:
                async with calls:
                    left = until - self._monotonic()
                    if left < LEAST_PATIENCE_SECONDS:
                        causes.append("there was no time left to ask")
                        silent.extend(request.scopes)
                        return
                    with as_domain_errors():
                        answer = await handler.stub.PlanScopes(request, timeout=min(patience, left))
                found = _read(answer, request)
            except Exception as error:  # noqa: BLE001 - an answer nobody can read is the owner's
                if len(request.scopes) > 1 and _divisible(error):
                    shorter = max(patience / 2, LEAST_PATIENCE_SECONDS)
                    await _all(settle(half, shorter, calls) for half in _halves(request))
                    return
                causes.append(str(error))
                silent.extend(request.scopes)
                if _divisible(error):
                    self._apart |= dict.fromkeys(_keys(request), self._monotonic())
            else:
                for key in _keys(request):
                    self._apart.pop(key, None)
                begin(await self._record(batch, found))

        kept_since = self._monotonic() - KEPT_APART_SECONDS
        self._apart = {key: at for key, at in self._apart.items() if at >= kept_since}
        parts = []
        for questions in _questions(batch.request, self._apart):
            calls = asyncio.Semaphore(MOST_CALLS)
            parts += [settle(each, PATIENCE_SECONDS, calls) for each in questions]
        await _all(parts)
        if silent:
            _log.warning(
                "A job's owner did not say what is due; it will be asked again.",
                action="hook.not_planned",
                job=batch.job.name,
                scopes=len(silent),
                scope_kind=silent[0].kind,
                scope_id=silent[0].id,
                cause=causes[-1],
            )

    async def _record(self, batch: AskedBatch, answers: Answers) -> list[Claim]:
        began = self._monotonic()
        asked = {each.row_id: each for each in batch.asked if (each.kind, each.scope_id) in answers}
        async with self._database.transaction() as tx:
            locked = await scopes.lock_asked(tx, list(asked.values()))
            due = await scopes.read_due(tx, locked)
            recorded = await executions.recorded(
                tx,
                batch.job.name,
                [(*key, at) for key, said in answers.items() for at in said.plan_times],
            )
            found: list[tuple[Scope, Occurrence]] = []
            moves: list[Move] = []
            for each in due:
                if len(found) >= MOST_RECORDED:
                    moves.append(Move(each.row_id, each.now + ASK_SOON))
                    continue
                planner = Planner(batch.job, each.now)
                key = (asked[each.row_id].kind, asked[each.row_id].scope_id)
                said = answers[key]
                free = max(0, batch.job.plans_per_scope - each.running)
                fresh = [at for at in said.plan_times if (*key, at) not in recorded]
                planned = planner.plan_hook(each.due, fresh, said.ask_again, free)
                found += [(each.scope, occurrence) for occurrence in planned.occurrences]
                moves.append(Move(each.row_id, planned.next_plan_at))
            claims = await Recorder(batch.job, self._runner, began).record(tx, found)
            await scopes.move(tx, moves)
        crash_point(crash_points.AFTER_HOOK_CLAIM)
        return claims


def _divisible(error: Exception) -> bool:
    """Tell whether one scope can be to blame: who is away, busy or closed to us is so for all."""
    if isinstance(error, Unavailable):
        return error.reason == "DEADLINE_EXCEEDED"
    if isinstance(error, DomainError) and error.reason == "UNIMPLEMENTED":
        return False
    return not isinstance(error, ResourceExhausted | PermissionDenied | Unauthenticated)


async def _all(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Let every part end, whatever becomes of another: what one has recorded must be begun."""
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if result is not None:
            raise result


def _questions(
    request: pb.PlanScopesRequest, apart: Collection[ScopeKey]
) -> tuple[list[pb.PlanScopesRequest], list[pb.PlanScopesRequest]]:
    """Ask about most scopes together, and about some one by one."""
    together: list[pb.HookScope] = []
    alone: list[pb.HookScope] = []
    for each in request.scopes:
        known = (request.job_name, each.kind, each.id) in apart
        (alone if known else together).append(each)
    others = [_about(request, together)] if together else []
    return others, [_about(request, [each]) for each in alone]


def _halves(request: pb.PlanScopesRequest) -> list[pb.PlanScopesRequest]:
    middle = len(request.scopes) // 2
    return [_about(request, request.scopes[:middle]), _about(request, request.scopes[middle:])]


def _about(request: pb.PlanScopesRequest, part: Sequence[pb.HookScope]) -> pb.PlanScopesRequest:
    return pb.PlanScopesRequest(job_name=request.job_name, now=request.now, scopes=part)


def _keys(request: pb.PlanScopesRequest) -> set[ScopeKey]:
    return {(request.job_name, each.kind, each.id) for each in request.scopes}


def _read(answer: pb.PlanScopesResponse, request: pb.PlanScopesRequest) -> Answers:
    """Read each asked scope's plan by itself: one that cannot be read says nothing of its scope."""
    answers = {(each.kind, each.id): Said() for each in request.scopes}
    for plan in answer.plans:
        if (plan.kind, plan.id) not in answers:
            continue
        try:
            answers[plan.kind, plan.id] = _said(plan)
        except (ValueError, OverflowError) as error:
            _log.warning(
                "What a job's owner planned for a scope cannot be read.",
                action="hook.unreadable_plan",
                job=request.job_name,
                scope_kind=plan.kind,
                scope_id=plan.id,
                cause=str(error),
            )
    return answers


def _said(plan: pb.ScopePlan) -> Said:
    again = plan.ask_again_time
    return Said(
        tuple(each.ToDatetime(tzinfo=UTC) for each in plan.plan_times),
        again.ToDatetime(tzinfo=UTC) if plan.HasField("ask_again_time") else None,
    )
