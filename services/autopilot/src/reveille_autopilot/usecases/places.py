"""Giving occurrences their place: the rest of the gate under locks, and the runs that it lets in.

An occurrence whose rule allows overlap and whose workspace counts nothing is decided before; only
its row is written here. The others are judged again with what is counted after the locks are held,
one by one, so that each sees those before it.

All were judged by their rule as it was read. A run is written only where that version is in force
still; one that an edit overtook is left out, and asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from reveille_autopilot.domain.admission import Occasion, freeze
from reveille_autopilot.domain.gate import (
    Counts,
    Judgement,
    Known,
    Occurrence,
    Rule,
    Start,
    Verdict,
    Wanted,
    judge,
)
from reveille_autopilot.domain.models import Autopilot, Payload, Quota, Run
from reveille_autopilot.domain.states import OverlapPolicy, QuotaAction, Reason
from reveille_autopilot.store import admission, limits
from reveille_autopilot.usecases.telling import run_event
from reveille_runtime.db import Tx
from reveille_runtime.lockorder import LockOrder


@dataclass(frozen=True, slots=True)
class Applicant:
    """An occurrence with everything that is known of it before the locks."""

    occasion: Occasion
    occurrence: Occurrence
    rule: Rule
    autopilot: Autopilot
    known: Known
    # What the gate said so far.
    found: Judgement | Wanted
    payload: Payload | None
    now: datetime

    @property
    def alone(self) -> bool:
        """Tell whether its rule's lock decides."""
        return (
            self.found is Wanted.COUNTS and self.autopilot.overlap_policy is not OverlapPolicy.ALLOW
        )

    @property
    def period(self) -> limits.Period | None:
        """Give the period in which it counts, where its lock decides."""
        if self.found is not Wanted.COUNTS or self.rule.quota.action is QuotaAction.OFF:
            return None
        return limits.Period(self.autopilot.workspace_id, *self.rule.quota.window(self.now))

    def run(self, judgement: Judgement) -> Run:
        """Make the run of a judgement."""
        return freeze(self.occasion, self.rule, self.autopilot, judgement, self.now)


@dataclass(frozen=True, slots=True)
class Placed:
    """A run that was inserted, and the judgement it rests on."""

    run: Run
    judgement: Judgement


@dataclass(slots=True)
class _Books:
    """What was counted, kept up with every run that gets its place."""

    active: Counter[UUID] = field(default_factory=Counter)
    buffered: Counter[UUID] = field(default_factory=Counter)
    used: Counter[UUID] = field(default_factory=Counter)
    blocked: Counter[tuple[limits.Period, str]] = field(default_factory=Counter)
    kept: dict[UUID, UUID] = field(default_factory=dict)

    def counts(self, each: Applicant) -> Counts:
        rule_id = each.autopilot.id
        return Counts(
            self.active[rule_id], self.buffered[rule_id], self.used[each.autopilot.workspace_id]
        )

    def enter(self, each: Applicant, judgement: Judgement) -> None:
        rule_id, period = each.autopilot.id, each.period
        if judgement.verdict is not Verdict.ADMIT:
            if judgement.reason == Reason.QUOTA_EXCEEDED and period is not None:
                self.blocked[period, each.occurrence.source.value] += 1
            return
        self.used[each.autopilot.workspace_id] += 1
        if judgement.start is Start.BUFFERED:
            self.buffered[rule_id] += 1
            return
        self.active[rule_id] += 1
        if judgement.start is Start.REPLACING:
            self.kept[rule_id] = each.occasion.run_id


async def place(tx: Tx, applicants: Sequence[Applicant]) -> list[Placed]:
    """Insert the runs of a batch; what was overtaken is left out.

    Where nothing is counted this is one statement.
    """
    books, overtaken = await _open_books(
        tx, [each for each in applicants if each.found is Wanted.COUNTS]
    )
    placed: dict[UUID, Placed] = {}
    new: list[admission.NewRun] = []
    for each in applicants:
        if each.occasion.key in overtaken:
            continue
        judgement = _decided(each, books)
        books.enter(each, judgement)
        run = each.run(judgement)
        placed[run.id] = Placed(run, judgement)
        new.append(admission.NewRun(run, each.payload))
    inserted: Sequence[UUID] = ()
    if new:
        inserted = await admission.insert(tx, new, [run_event(each.run) for each in new])
    await limits.cancel_others(
        tx, {rule: run_id for rule, run_id in books.kept.items() if run_id in inserted}
    )
    for (period, source), number in sorted(
        books.blocked.items(), key=lambda entry: (entry[0][0].workspace_id, entry[0][1])
    ):
        await limits.count_blocked(tx, period.workspace_id, period.start, source, number)
    return [placed[run_id] for run_id in inserted]


async def _open_books(tx: Tx, applicants: Sequence[Applicant]) -> tuple[_Books, set[str]]:
    """Lock what decides, then count: a later statement sees what was committed meanwhile.

    Gives the keys that were overtaken too: by another admission, or by an edit of the rule or of
    the quota. They take no place from those after them.
    """
    books = _Books()
    if not applicants:
        return books, set()
    locks = LockOrder()
    periods = {each.period: each.rule.quota.limit for each in applicants if each.period is not None}
    in_force = await limits.lock_rules(tx, locks, {each.autopilot.id for each in applicants})
    ordered = sorted(periods.items(), key=lambda entry: entry[0].workspace_id)
    await limits.lock_periods(tx, locks, [period for period, _ in ordered])
    overtaken = set(await admission.find_by_key(tx, [each.occasion.key for each in applicants]))
    if alone := sorted({each.autopilot.id for each in applicants if each.alone}):
        for rule_id, (active, buffered) in (await limits.overlapping(tx, alone)).items():
            books.active[rule_id], books.buffered[rule_id] = active, buffered
    quotas: dict[limits.Period | None, Quota | None] = {}
    for period, limit in ordered:
        used, quotas[period] = await limits.used(tx, period.workspace_id, period.start, limit)
        books.used[period.workspace_id] = used
    for each in applicants:
        if in_force.get(each.autopilot.id) != each.autopilot.rule_version_id or (
            each.period is not None and quotas[each.period] != each.rule.quota
        ):
            overtaken.add(each.occasion.key)
    return books, overtaken


def _decided(each: Applicant, books: _Books) -> Judgement:
    if isinstance(each.found, Judgement):
        return each.found
    judgement = judge(each.occurrence, each.rule, replace(each.known, counts=books.counts(each)))
    if isinstance(judgement, Wanted):
        raise RuntimeError("the gate knows all there is")  # noqa: TRY004 - a fault of ours
    return judgement
