"""EnqueueWakeups: record wishes to wake agents, judge each, and queue those accepted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from opentelemetry.trace import SpanKind, set_span_in_context

from reveille_heartbeat.crash_points import ENQUEUE_AFTER_COMMIT, ENQUEUE_BEFORE_COMMIT
from reveille_heartbeat.domain.values import Carrier, Wish
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.wakeups.enqueuing import Enqueuing
from reveille_heartbeat.usecases.wakeups.known_wishes import (
    Answers,
    Enqueued,
    made_by_caller_key,
    made_by_occurrence,
    made_by_this_call,
    without_repeats,
)
from reveille_heartbeat.usecases.wakeups.normalising import normalise
from reveille_runtime import semconv
from reveille_runtime.carrier import extract, inject
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.lockorder import Level, LockOrder
from reveille_runtime.telemetry import Telemetry


class EnqueueWakeups:
    """Judges a batch in one transaction: all its keys and locks first, then the decisions."""

    def __init__(
        self, db: Database, telemetry: Telemetry, notifier: Notifier, enqueuing: Enqueuing
    ) -> None:
        self._db = db
        self._telemetry = telemetry
        self._notifier = notifier
        self._enqueuing = enqueuing

    async def __call__(self, wishes: Sequence[Wish]) -> list[Enqueued]:
        """Give one answer per wish, in order."""
        with contextlib.ExitStack() as spans:
            carriers = {
                wish.wakeup_id: spans.enter_context(sending(self._telemetry, wish))
                for wish in wishes
            }
            tries = 0

            async def enqueue(tx: Tx) -> Answers:
                nonlocal tries
                tries += 1
                # The COMMIT of an earlier try may have arrived although its answer did not.
                known = await made_by_this_call(tx, wishes) if tries > 1 else {}
                answers = await self._in(tx, wishes, carriers, known)
                crash_point(ENQUEUE_BEFORE_COMMIT)
                return answers

            answers = await retrying_transaction(self._db, enqueue, repeatable=True)
        crash_point(ENQUEUE_AFTER_COMMIT)
        self._notifier.notify(channels.QUEUE, channels.FEED)
        return [answers[wish.wakeup_id] for wish in wishes]

    async def _in(
        self,
        tx: Tx,
        wishes: Sequence[Wish],
        carriers: Mapping[UUID, Carrier],
        answers: Answers,
    ) -> Answers:
        first, repeats = without_repeats([each for each in wishes if each.wakeup_id not in answers])
        made, late = await made_by_occurrence(tx, first)
        answers |= made
        answers |= await made_by_caller_key(tx, first)
        new = await normalise(
            tx,
            [w for w in first if w.wakeup_id not in answers and w.wakeup_id not in late],
        )
        await _lock(tx, new)
        answers |= await self._enqueuing.unknown(tx, new, carriers, list(late.values()))
        for repeat, original in repeats:
            answers[repeat.wakeup_id] = replace(answers[original.wakeup_id], existed=True)
        return answers


async def _lock(tx: Tx, wishes: Sequence[Wish]) -> None:
    """Lock where wakes meet: on their issue, or on their agent if they are about none."""
    locks = LockOrder()
    agents = {
        each.agent_id
        for each in wishes
        if each.issue_id is None and each.origin.occurrence_key is None
    }
    issues = {each.issue_id for each in wishes if each.issue_id is not None}
    await locks.take(tx, Level.AGENT, Q["lock_agents"], agents)
    await locks.take(tx, Level.ISSUE, Q["lock_issues"], issues)


@contextlib.contextmanager
def sending(telemetry: Telemetry, wish: Wish) -> Iterator[Carrier]:
    """Open the span that stores a wakeup; its carrier rests in the row."""
    if not telemetry.enabled:
        yield wish.origin.trace_carrier
        return
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
