"""Admission: occurrences of every source, by the batch, through the one gate, into runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.admission import Occasion
from reveille_autopilot.domain.attribution import Publisher, invoker
from reveille_autopilot.domain.gate import (
    Judgement,
    Known,
    Occurrence,
    Rule,
    Start,
    Verdict,
    Wanted,
    judge,
    runtime_must_be_online,
)
from reveille_autopilot.domain.keys import generation_key
from reveille_autopilot.domain.models import Payload, Run
from reveille_autopilot.store import admission
from reveille_autopilot.usecases.invocability import Inquiry, Question, Subject
from reveille_autopilot.usecases.peers import Heartbeat
from reveille_autopilot.usecases.places import Applicant, Placed, place
from reveille_autopilot.usecases.settle import Settler
from reveille_autopilot.usecases.summary import RunTracing
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_statement, retrying_transaction

# Small batches beside each other take as long as one after the other, and cost more. What one of
# them waits for, heartbeat for instance, holds the next one up no longer than this.
_GATHER_SECONDS = 0.02
_NOTHING = Known()
_WITHOUT_RUN = (Verdict.IGNORE, Verdict.UNAVAILABLE)
# Edits are made by people: one may overtake an admission, several of them hardly do.
_ROUNDS = 3
_OVERTAKEN = Judgement(Verdict.UNAVAILABLE, None, "its rule is being changed just now; ask again")


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

    @property
    def subject(self) -> Subject:
        """Name the rule that it is an occurrence of."""
        return self.occurrence.trigger_id, self.autopilot_id


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
    now: datetime

    @property
    def alike(self) -> tuple[int, Occurrence]:
        """Name what the gate goes by; a rule that was read once is one object."""
        return id(self.rule), self.candidate.occurrence

    def judge(self, known: Known = _NOTHING) -> Judgement | Wanted:
        """Ask the gate."""
        return judge(self.candidate.occurrence, self.rule, known)


class Admissions:
    """Judges and stores. Many callers with one candidate each share batches."""

    def __init__(
        self, db: Database, heartbeat: Heartbeat, tracing: RunTracing, settler: Settler
    ) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._asked_last: dict[Subject, Question] = {}
        self._tracing = tracing
        self._settler = settler
        self.batcher: Batcher[Candidate, Admission] = Batcher(
            "autopilot.admit",
            self._admit,
            key=lambda candidate: candidate.key,
            gather=_GATHER_SECONDS,
        )

    async def admit(self, candidate: Candidate) -> Admission:
        """Admit one occurrence; the same key again gives the run it has made."""
        return await self.batcher.submit(candidate)

    async def admit_all(self, candidates: Sequence[Candidate]) -> list[Admission | Exception]:
        """Admit many, in order; what went wrong with one of them stands in its place."""
        return await self.batcher.submit_all(candidates)

    async def _admit(self, candidates: Sequence[Candidate]) -> list[Admission]:
        """Admit a batch; whom another admission, or an edit, overtook is looked at again."""
        admissions: dict[str, Admission] = {}
        for _ in range(_ROUNDS):
            left = [each for each in candidates if each.key not in admissions]
            if not left:
                break
            admissions |= await self._look(left)
        overtaken = Admission(None, _OVERTAKEN)
        return [admissions.get(each.key, overtaken) for each in candidates]

    async def _look(self, candidates: Sequence[Candidate]) -> dict[str, Admission]:
        """Judge by what is on record now, and store; gives those that nothing overtook."""
        # Of a burst most occurrences are those of a few triggers: each is read once.
        wanted = list(dict.fromkeys(each.subject for each in candidates))
        with Inquiry(self._heartbeat, self._asked_last) as inquiry:
            async with self._db.session() as tx:
                inquiry.foresee(wanted)
                rules, taken = await admission.load_rules(
                    tx, wanted, [each.key for each in candidates]
                )
                known = await _current(tx, taken)
            rule_of = dict(zip(wanted, rules, strict=True))
            loaded = []
            for each in candidates:
                key, run = known.get(each.key, (each.key, None))
                if run is None:
                    loaded.append(_loaded(each, key, rule_of[each.subject]))
            judged = await self._judge(loaded, inquiry)
        admissions = {
            base: Admission(run, autopilot_id=run.autopilot_id)
            for base, (_, run) in known.items()
            if run is not None
        }
        return admissions | await self._store(judged)

    async def _judge(
        self, loaded: Sequence[_Loaded], inquiry: Inquiry
    ) -> list[tuple[_Loaded, Known, Judgement | Wanted]]:
        """Ask heartbeat about those that pass our own checks, then judge all by its answers.

        Of a burst most are alike; what is alike is judged once.
        """
        numbers: dict[tuple[int, Occurrence], int] = {}
        groups = [numbers.setdefault(each.alike, len(numbers)) for each in loaded]
        one_of = dict(zip(groups, loaded, strict=True))
        found = {group: each.judge() for group, each in one_of.items()}
        questions = {
            group: _question(one_of[group])
            for group, wanted in found.items()
            if wanted is Wanted.INVOCABLE
        }
        answers = await inquiry.answers(
            [each.candidate.subject for each in one_of.values()],
            [(one_of[group].candidate.subject, each) for group, each in questions.items()],
        )
        known = dict.fromkeys(one_of, _NOTHING)
        for group, question in questions.items():
            known[group] = Known(asked=True, invocable=answers.get(question))
            found[group] = one_of[group].judge(known[group])
        return [
            (each, known[group], found[group]) for group, each in zip(groups, loaded, strict=True)
        ]

    async def _store(
        self, judged: Sequence[tuple[_Loaded, Known, Judgement | Wanted]]
    ) -> dict[str, Admission]:
        """Insert the runs; gives those that were, and the refusals that leave none."""
        admissions: dict[str, Admission] = {}
        new: dict[str, Applicant] = {}
        for each, known, found in judged:
            autopilot, key = each.rule.autopilot, each.candidate.key
            without_run = isinstance(found, Judgement) and found.verdict in _WITHOUT_RUN
            if autopilot is not None and not without_run:
                new[key] = Applicant(
                    self._occasion(each),
                    each.candidate.occurrence,
                    each.rule,
                    autopilot,
                    known,
                    found,
                    each.candidate.payload,
                    each.now,
                )
            elif isinstance(found, Judgement):
                rule_id = None if autopilot is None else autopilot.id
                admissions[key] = Admission(None, found, rule_id)
        if not new:
            return admissions
        keys = {each.occasion.run_id: key for key, each in new.items()}
        for made in await self._insert(list(new.values())):
            admissions[keys[made.run.id]] = Admission(
                made.run, made.judgement, made.run.autopilot_id
            )
        return admissions

    async def _insert(self, applicants: Sequence[Applicant]) -> list[Placed]:
        counted = any(each.found is Wanted.COUNTS for each in applicants)

        async def write(tx: Tx) -> list[Placed]:
            if not counted:
                # Then it is one statement, which commits by itself.
                crash_point("autopilot.admit.before_commit")
                return await place(tx, applicants)
            placed = await place(tx, applicants)
            crash_point("autopilot.admit.before_commit")
            return placed

        if counted:
            placed = await retrying_transaction(self._db, write, repeatable=True)
        else:
            placed = await retrying_statement(self._db, write)
        crash_point("autopilot.admit.after_commit")
        self._tracing.admitted([each.judgement for each in placed])
        self._settler.announce([each.run for each in placed if each.run.terminal])
        self._settler.tell()
        if any(each.judgement.start is Start.REPLACING for each in placed):
            self._settler.wake_sweep()
        return placed

    def _occasion(self, each: _Loaded) -> Occasion:
        candidate = each.candidate
        return Occasion(
            run_id=candidate.run_id,
            key=each.key,
            source=candidate.occurrence.source,
            trigger_id=candidate.occurrence.trigger_id,
            planned_at=candidate.planned_at,
            delivery_id=candidate.delivery_id,
            payload_ready=candidate.payload_ready,
            request_fingerprint=candidate.request_fingerprint,
            trace_carrier=self._tracing.seed(candidate.trace_carrier),
        )


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


def _loaded(candidate: Candidate, key: str, read: admission.LoadedRule) -> _Loaded:
    return _Loaded(candidate, key, _clicked(read.rule, candidate.clicker), read.now)


def _clicked(rule: Rule, clicker: Publisher | None) -> Rule:
    if clicker is None:
        return rule
    return replace(rule, candidates=replace(rule.candidates, clicker=clicker))


def _question(each: _Loaded) -> Question:
    autopilot = each.rule.autopilot
    if autopilot is None:
        raise RuntimeError("the gate asks nothing about what has no rule")
    person = invoker(each.rule.candidates)
    return Question(
        autopilot.workspace_id,
        autopilot.agent_id,
        autopilot.squad_id,
        autopilot.project_id,
        "" if person is None else person.user_id,
        person is not None,
        runtime_must_be_online(autopilot.execution_mode),
    )
