"""Admission: occurrences of every source, by the batch, through the one gate, into runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.admission import Occasion, freeze
from reveille_autopilot.domain.attribution import Publisher, principal
from reveille_autopilot.domain.gate import (
    Invocable,
    Judgement,
    Occurrence,
    Rule,
    Verdict,
    judge,
    own_checks,
    runtime_must_be_online,
)
from reveille_autopilot.domain.keys import generation_key
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.store import admission
from reveille_autopilot.usecases.invocability import Question, ask
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_autopilot.usecases.settle import Settler
from reveille_autopilot.usecases.summary import RunTracing
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction


@dataclass(frozen=True, slots=True)
class Candidate:
    """An occurrence that asks to become a run. The caller makes the run's id."""

    run_id: UUID
    key: str
    occurrence: Occurrence
    autopilot_id: UUID | None = None
    planned_at: datetime | None = None
    delivery_id: UUID | None = None
    clicker: Publisher | None = None
    payload: Payload | None = None
    # A delivery's body comes later, when the gateway dispatches it.
    payload_ready: bool = True
    request_fingerprint: bytes | None = None
    trace_carrier: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a candidate: a run of this or an earlier call, or a refusal without one."""

    run: Run | None
    judgement: Judgement | None = None
    autopilot_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A candidate without a run, with the key that is free and the rule it is judged by."""

    candidate: Candidate
    key: str
    rule: Rule
    fail_closed: bool
    now: datetime


class Admissions:
    """Judges and stores. Many callers with one candidate each share batches."""

    def __init__(
        self, db: Database, heartbeat: Heartbeat, tracing: RunTracing, settler: Settler
    ) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._tracing = tracing
        self._settler = settler
        self.batcher: Batcher[Candidate, Admission] = Batcher(
            "autopilot.admit", self._admit, key=lambda candidate: candidate.key
        )

    async def admit(self, candidate: Candidate) -> Admission:
        """Admit one occurrence; the same key again gives the run it has made."""
        return await self.batcher.submit(candidate)

    async def _admit(self, candidates: Sequence[Candidate]) -> list[Admission]:
        async with self._db.session() as tx:
            known = await _current(tx, [each.key for each in candidates])
            fresh = [each for each in candidates if known[each.key][1] is None]
            loaded = await _load(tx, fresh, known)
        judged = await self._judge(loaded)
        admissions = {
            each.key: Admission(run, autopilot_id=run.autopilot_id)
            for each in candidates
            if (run := known[each.key][1]) is not None
        }
        admissions |= await self._store(judged)
        return [admissions[each.key] for each in candidates]

    async def _judge(self, loaded: Sequence[_Loaded]) -> list[tuple[_Loaded, Judgement]]:
        """Ask heartbeat about those that pass our own checks, then judge all."""
        questions = {
            each.candidate.key: question
            for each in loaded
            if (question := _question(each)) is not None
        }
        answers = await ask(self._heartbeat, list(questions.values()))
        judged = []
        for each in loaded:
            invocable: Invocable | None = None
            if (question := questions.get(each.candidate.key)) is not None:
                invocable = answers.get(question)
            judgement = judge(
                each.candidate.occurrence, each.rule, invocable, fail_closed=each.fail_closed
            )
            judged.append((each, judgement))
        return judged

    async def _store(self, judged: Sequence[tuple[_Loaded, Judgement]]) -> dict[str, Admission]:
        """Insert the runs; where another admission was first, its run is the answer."""
        admissions: dict[str, Admission] = {}
        new: dict[str, admission.NewRun] = {}
        for each, judgement in judged:
            autopilot = each.rule.autopilot
            key = each.candidate.key
            if autopilot is None or judgement.verdict in {Verdict.IGNORE, Verdict.UNAVAILABLE}:
                admissions[key] = Admission(
                    None, judgement, None if autopilot is None else autopilot.id
                )
                continue
            occasion = Occasion(
                run_id=each.candidate.run_id,
                key=each.key,
                source=each.candidate.occurrence.source,
                trigger_id=each.candidate.occurrence.trigger_id,
                planned_at=each.candidate.planned_at,
                delivery_id=each.candidate.delivery_id,
                payload_ready=each.candidate.payload_ready,
                request_fingerprint=each.candidate.request_fingerprint,
                trace_carrier=self._tracing.seed(each.candidate.trace_carrier),
            )
            run = freeze(occasion, autopilot, each.rule.trigger, judgement, each.now)
            new[key] = admission.NewRun(run, each.candidate.payload)
            admissions[key] = Admission(run, judgement, autopilot.id)
        if not new:
            return admissions
        first, others = await self._insert(new)
        self._settler.announce([new[key].run for key in first if new[key].run.terminal])
        for key, run in others.items():
            admissions[key] = Admission(run, autopilot_id=run.autopilot_id)
        return admissions

    async def _insert(
        self, new: Mapping[str, admission.NewRun]
    ) -> tuple[list[str], dict[str, Run]]:
        async def write(tx: Tx) -> set[UUID]:
            inserted = await admission.insert(tx, list(new.values()))
            crash_point("autopilot.admit.before_commit")
            return inserted

        inserted = await retrying_transaction(self._db, write, repeatable=True)
        crash_point("autopilot.admit.after_commit")
        lost = [key for key, each in new.items() if each.run.id not in inserted]
        if not lost:
            return list(new), {}
        async with self._db.session() as tx:
            found = await _current(tx, lost)
        others = {key: run for key, (_, run) in found.items() if run is not None}
        return [key for key in new if key not in lost], others


async def _current(tx: Tx, keys: Sequence[str]) -> dict[str, tuple[str, Run | None]]:
    """Find each occurrence's run in force, and the key it has, or would have.

    A run that was given up is not in force, and the next one has a key of its own. A caller who
    names a request asks for that very run, whatever became of it.
    """
    found: dict[str, tuple[str, Run | None]] = {}
    generations = dict.fromkeys(keys, 0)
    while generations:
        names = {base: generation_key(base, number) for base, number in generations.items()}
        rows = await admission.find_by_key(tx, list(names.values()))
        following: dict[str, int] = {}
        for base, name in names.items():
            run = rows.get(name)
            if run is not None and run.given_up_at is not None and not run.source.on_request:
                following[base] = generations[base] + 1
            else:
                found[base] = (name, run)
        generations = following
    return found


async def _load(
    tx: Tx, fresh: Sequence[Candidate], known: Mapping[str, tuple[str, Run | None]]
) -> list[_Loaded]:
    if not fresh:
        return []
    rules = await admission.load_rules(
        tx, [(each.occurrence.trigger_id, each.autopilot_id) for each in fresh]
    )
    return [
        _Loaded(
            candidate,
            known[candidate.key][0],
            replace(
                loaded.rule, candidates=replace(loaded.rule.candidates, clicker=candidate.clicker)
            ),
            loaded.fail_closed,
            loaded.now,
        )
        for candidate, loaded in zip(fresh, rules, strict=True)
    ]


def _question(each: _Loaded) -> Question | None:
    autopilot = each.rule.autopilot
    if autopilot is None or own_checks(each.candidate.occurrence, each.rule) is not None:
        return None
    person = principal(each.rule.candidates)
    return Question(
        autopilot.workspace_id,
        autopilot.agent_id,
        "" if person is None else person.user_id,
        person is not None and person.active_member,
        runtime_must_be_online(autopilot.execution_mode),
    )
