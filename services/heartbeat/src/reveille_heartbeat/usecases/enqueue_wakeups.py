"""EnqueueWakeups: record wishes to wake agents, judge each, and queue those accepted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from opentelemetry.trace import SpanKind, set_span_in_context

from reveille_heartbeat.crash_points import ENQUEUE_AFTER_COMMIT, ENQUEUE_BEFORE_COMMIT
from reveille_heartbeat.domain.enqueue import Facts, Surroundings
from reveille_heartbeat.domain.states import WakeupState
from reveille_heartbeat.domain.values import Carrier, Wakeup, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_agent, to_issue, to_wakeup, to_workspace
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.deciding import Decider
from reveille_heartbeat.usecases.recording import Decided, record
from reveille_runtime import semconv
from reveille_runtime.carrier import extract, inject
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.telemetry import Telemetry

# A wish is known by the occurrence's key, by its caller's key, or not at all.
Key = tuple[UUID, str, str]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a wish."""

    wakeup_id: UUID
    state: WakeupState
    reason: str
    message: str
    existed: bool = False

    @classmethod
    def of(cls, wakeup: Wakeup) -> Enqueued:
        """Answer with what was there already."""
        return cls(wakeup.wakeup_id, wakeup.state, wakeup.reason, wakeup.message, existed=True)


class EnqueueWakeups:
    """Judges a batch in one transaction: all its locks first, then one decision after the other."""

    def __init__(
        self,
        db: Database,
        telemetry: Telemetry,
        notifier: Notifier,
        decider: Decider,
        start_limit: timedelta,
    ) -> None:
        self._db = db
        self._telemetry = telemetry
        self._notifier = notifier
        self._decider = decider
        self._start_limit = start_limit

    async def __call__(self, wishes: Sequence[Wish]) -> list[Enqueued]:
        """Give one answer per wish, in order."""
        with contextlib.ExitStack() as spans:
            carriers = {
                wish.wakeup_id: spans.enter_context(sending(self._telemetry, wish))
                for wish in wishes
            }

            tries = 0

            async def enqueue(tx: Tx) -> dict[UUID, Enqueued]:
                nonlocal tries
                tries += 1
                batch = _Batch(tx, self._decider, carriers, self._start_limit)
                if tries > 1:
                    # The COMMIT before may have arrived although its answer did not.
                    await batch.recall(wishes)
                answers = await batch.run(wishes)
                crash_point(ENQUEUE_BEFORE_COMMIT)
                return answers

            answers = await retrying_transaction(self._db, enqueue, repeatable=True)
        crash_point(ENQUEUE_AFTER_COMMIT)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return [answers[wish.wakeup_id] for wish in wishes]


@contextlib.contextmanager
def sending(telemetry: Telemetry, wish: Wish) -> Iterator[Carrier]:
    """Open the span that stores a wakeup; its carrier rests in the row."""
    span = telemetry.tracer.start_span(
        semconv.send_span("heartbeat.wakeups"),
        context=extract(wish.origin.trace_carrier),
        kind=SpanKind.PRODUCER,
        attributes={
            semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_PG,
            semconv.MESSAGING_DESTINATION: "heartbeat.wakeups",
            semconv.MESSAGING_MESSAGE_ID: str(wish.wakeup_id),
            semconv.WORKSPACE_ID: str(wish.workspace_id),
        },
    )
    try:
        yield inject(set_span_in_context(span, extract(wish.origin.trace_carrier)))
    finally:
        span.end()


def key_of(wish: Wish) -> Key | None:
    """Say by what a repeat of this wish would be recognised."""
    if wish.origin.occurrence_key is not None:
        return (wish.workspace_id, "", wish.origin.occurrence_key)
    if wish.idempotency_key is not None:
        return (wish.workspace_id, wish.caller, wish.idempotency_key)
    return None


class _Batch:
    """One transaction's work."""

    def __init__(
        self,
        tx: Tx,
        decider: Decider,
        carriers: dict[UUID, Carrier],
        start_limit: timedelta,
    ) -> None:
        self._tx = tx
        self._decider = decider
        self._carriers = carriers
        self._start_limit = start_limit
        self._answers: dict[UUID, Enqueued] = {}

    async def recall(self, wishes: Sequence[Wish]) -> None:
        """Answer wishes whose rows this very call has written."""
        found = await _wakeups(self._tx, [wish.wakeup_id for wish in wishes])
        for wakeup_id, wakeup in found.items():
            self._answers[wakeup_id] = Enqueued(
                wakeup_id, wakeup.state, wakeup.reason, wakeup.message
            )

    async def run(self, wishes: Sequence[Wish]) -> dict[UUID, Enqueued]:
        """Decide and write all of them."""
        open_ones = [wish for wish in wishes if wish.wakeup_id not in self._answers]
        first, repeats = _without_repeats(open_ones)
        late = await self._by_occurrence([w for w in first if w.origin.occurrence_key is not None])
        await self._by_caller_key([w for w in first if w.idempotency_key is not None])
        new = [w for w in first if w.wakeup_id not in self._answers and w.wakeup_id not in late]
        decided = await self._decide(new)
        decided += [self._decider.cancelled(w, self._carriers[w.wakeup_id]) for w in late.values()]
        now = await self._tx.fetchval(Q["read_clock"])
        written = await record(self._tx, decided, now=now, start_limit=self._start_limit)
        lost = []
        for each in decided:
            if each.wish.wakeup_id in written:
                self._answers[each.wish.wakeup_id] = _answer(each)
            else:
                lost.append(each.wish)
        # Another call took the key between our look and our insert; now it can be seen.
        await self._by_caller_key(lost)
        for repeat, original in repeats:
            found = self._answers[original.wakeup_id]
            self._answers[repeat.wakeup_id] = Enqueued(
                found.wakeup_id, found.state, found.reason, found.message, existed=True
            )
        return self._answers

    async def _by_occurrence(self, wishes: Sequence[Wish]) -> dict[UUID, Wish]:
        """Take the keys; answer those that were taken, and give those that were cancelled."""
        if not wishes:
            return {}
        spaces = [wish.workspace_id for wish in wishes]
        keys = [wish.origin.occurrence_key for wish in wishes]
        taken = await self._tx.fetch(
            Q["take_occurrences"],
            spaces,
            keys,
            [wish.wakeup_id for wish in wishes],
            [None for _ in wishes],
        )
        ours = {(row["workspace_id"], row["occurrence_key"]) for row in taken}
        others = {
            (wish.workspace_id, wish.origin.occurrence_key or ""): wish
            for wish in wishes
            if (wish.workspace_id, wish.origin.occurrence_key) not in ours
        }
        late = await self._existing(others)
        if not late:
            return {}
        linked = await self._tx.fetch(
            Q["link_cancelled_occurrences"],
            [space for space, _ in late],
            [key for _, key in late],
            [wish.wakeup_id for wish in late.values()],
        )
        first = {(row["workspace_id"], row["occurrence_key"]) for row in linked}
        await self._existing({key: wish for key, wish in late.items() if key not in first})
        return {wish.wakeup_id: wish for key, wish in late.items() if key in first}

    async def _existing(self, wishes: dict[tuple[UUID, str], Wish]) -> dict[tuple[UUID, str], Wish]:
        """Answer with what the keys have made; give those whose key made nothing."""
        if not wishes:
            return {}
        rows = await self._tx.fetch(
            Q["find_occurrences"], [space for space, _ in wishes], [key for _, key in wishes]
        )
        made = {
            (row["workspace_id"], row["occurrence_key"]): row["wakeup_id"]
            for row in rows
            if row["wakeup_id"] is not None
        }
        wakeups = await _wakeups(self._tx, list(made.values()))
        for key, wakeup_id in made.items():
            self._answers[wishes[key].wakeup_id] = Enqueued.of(wakeups[wakeup_id])
        return {key: wish for key, wish in wishes.items() if key not in made}

    async def _by_caller_key(self, wishes: Sequence[Wish]) -> None:
        """Answer wishes that their caller has sent before."""
        if not wishes:
            return
        rows = await self._tx.fetch(
            Q["find_by_idempotency_key"],
            [wish.workspace_id for wish in wishes],
            [wish.caller for wish in wishes],
            [wish.idempotency_key for wish in wishes],
        )
        by_key = {
            (row["workspace_id"], row["caller"], row["idempotency_key"]): row["wakeup_id"]
            for row in rows
        }
        wakeups = await _wakeups(self._tx, list(by_key.values()))
        for wish in wishes:
            found = by_key.get((wish.workspace_id, wish.caller, wish.idempotency_key))
            if found is not None:
                self._answers[wish.wakeup_id] = Enqueued.of(wakeups[found])

    async def _decide(self, wishes: Sequence[Wish]) -> list[Decided]:
        """Lock, then look, then decide: the look sees what was committed while we waited."""
        tx, locks = self._tx, LockOrder()
        free = [wish for wish in wishes if wish.origin.occurrence_key is None]
        agents = {wish.agent_id for wish in free if wish.issue_id is None}
        issues = {wish.issue_id for wish in wishes if wish.issue_id is not None}
        await locks.take(tx, Level.AGENT, Q["lock_agents"], agents)
        await locks.take(tx, Level.ISSUE, Q["lock_issues"], issues)
        facts = await _read_facts(tx, wishes)
        joinable: dict[tuple[UUID, UUID | None], UUID] = {}
        with_run: set[UUID] = set()
        if free:
            rows = await tx.fetch(Q["find_joinable"], sorted({wish.agent_id for wish in free}))
            for row in reversed(rows):
                joinable[row["agent_id"], row["issue_id"]] = row["wakeup_id"]
            busy = await tx.fetch(Q["issues_with_run"], sorted(issues))
            with_run = {row["issue_id"] for row in busy}
        decided = []
        for wish in wishes:
            around = Surroundings(
                joinable_wakeup_id=joinable.get((wish.agent_id, wish.issue_id)),
                issue_has_run=wish.issue_id in with_run,
            )
            carrier = self._carriers[wish.wakeup_id]
            made = self._decider.decide(wish, facts[wish.wakeup_id], around, carrier)
            decided.append(made)
            if made.state is WakeupState.QUEUED:
                # The next wish of this batch meets this one.
                if wish.origin.occurrence_key is None:
                    joinable[wish.agent_id, wish.issue_id] = wish.wakeup_id
                if wish.issue_id is not None:
                    with_run.add(wish.issue_id)
        return decided


def _without_repeats(wishes: Sequence[Wish]) -> tuple[list[Wish], list[tuple[Wish, Wish]]]:
    """Split off wishes that repeat an earlier one of the same batch."""
    first: dict[Key, Wish] = {}
    kept: list[Wish] = []
    repeats: list[tuple[Wish, Wish]] = []
    for wish in wishes:
        key = key_of(wish)
        if key is not None and key in first:
            repeats.append((wish, first[key]))
            continue
        if key is not None:
            first[key] = wish
        kept.append(wish)
    return kept, repeats


async def _read_facts(tx: Tx, wishes: Sequence[Wish]) -> dict[UUID, Facts]:
    spaces = await tx.fetch(Q["find_workspaces"], sorted({w.workspace_id for w in wishes}))
    agents = await tx.fetch(Q["find_agents"], sorted({w.agent_id for w in wishes}))
    wanted = sorted({w.issue_id for w in wishes if w.issue_id is not None})
    issues = await tx.fetch(Q["find_issues"], wanted) if wanted else []
    space_of = {row["workspace_id"]: to_workspace(row) for row in spaces}
    agent_of = {row["agent_id"]: to_agent(row) for row in agents}
    issue_of = {row["issue_id"]: to_issue(row) for row in issues}
    return {
        wish.wakeup_id: Facts(
            space_of.get(wish.workspace_id),
            agent_of.get(wish.agent_id),
            issue_of.get(wish.issue_id) if wish.issue_id is not None else None,
        )
        for wish in wishes
    }


async def _wakeups(tx: Tx, ids: list[UUID]) -> dict[UUID, Wakeup]:
    if not ids:
        return {}
    rows = await tx.fetch(Q["find_wakeups"], ids)
    return {row["wakeup_id"]: to_wakeup(row) for row in rows}


def _answer(each: Decided) -> Enqueued:
    return Enqueued(each.wish.wakeup_id, each.state, each.reason, each.message)
