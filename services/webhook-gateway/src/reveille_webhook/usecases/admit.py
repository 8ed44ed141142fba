"""Have deliveries judged by autopilot, by the batch, and write what it said."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.batcher import Batcher
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database
from reveille_runtime.errors import ResourceExhausted
from reveille_webhook import crash_points
from reveille_webhook.domain.delivery import Admission, Facts
from reveille_webhook.domain.states import Judgement
from reveille_webhook.store import deliveries
from reveille_webhook.store.deliveries import Judged
from reveille_webhook.usecases.autopilot import Autopilot
from reveille_webhook.usecases.store_delivery import GATHER_SECONDS, MOST_TOGETHER

# Nobody waits for a judgement to be written: what follows within this time is written with it.
_RECORD_LINGER_SECONDS = 0.03
_UNDECIDED = Admission(None, message="no answer in time")
_log = logs.get_logger(__name__)


class _Ask:
    """One delivery to be judged, and who waits for the judgement."""

    __slots__ = ("answers_with", "facts", "records")

    def __init__(self, facts: Facts, *, records: bool, answers_with: int | None) -> None:
        self.facts = facts
        self.records = records
        # The status that the sender gets if the judgement is there in time.
        self.answers_with = answers_with


class Admit:
    """Asks; a delivery that several ask for at once is asked for once.

    For requests the judgement is written here, behind the answer, so that a resend and the worker
    find it: what it says is on record with autopilot. Failing to write it changes nothing: whoever
    asks again hears the same.
    """

    def __init__(
        self, database: Database, autopilot: Autopilot, dispatch_soon: Callable[[], None]
    ) -> None:
        self._database = database
        self._autopilot = autopilot
        self._dispatch_soon = dispatch_soon
        self._recording: set[asyncio.Task[None]] = set()
        self._asks: Batcher[_Ask, Admission] = Batcher(
            "admissions",
            self._run,
            max_items=MOST_TOGETHER,
            max_in_flight=2,
            gather=GATHER_SECONDS,
        )
        self._records: Batcher[Sequence[Judged], None] = Batcher(
            "judgements",
            self._write,
            max_items=8,
            max_in_flight=2,
            gather=GATHER_SECONDS,
            linger=_RECORD_LINGER_SECONDS,
            # Not for long: what is not written the worker repairs.
            retry_for=1.0,
        )

    async def __aenter__(self) -> Admit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.settled()

    async def settled(self) -> None:
        """Wait until what was answered so far is written."""
        await asyncio.gather(*self._recording)

    async def for_request(
        self, facts: Facts, timeout: float, *, answers_with: int | None
    ) -> Admission:
        """Have a delivery judged while its sender waits; undecided when the time is over."""
        ask = _Ask(facts, records=True, answers_with=answers_with)
        try:
            return await self._asks.submit(ask, timeout=timeout)
        except (TimeoutError, ResourceExhausted):
            ask.answers_with = None
            return _UNDECIDED

    async def for_worker(self, facts: Facts) -> Admission:
        """Have a delivery judged that the worker holds; it writes the judgement under its lease."""
        return await self._asks.submit(_Ask(facts, records=False, answers_with=None))

    async def _run(self, asks: Sequence[_Ask]) -> list[Admission]:
        facts = {each.facts.delivery_id: each.facts for each in asks}
        crash_point(crash_points.BEFORE_ADMIT)
        said = await self._autopilot.admit(list(facts.values()))
        crash_point(crash_points.AFTER_ADMIT)
        admissions = dict(zip(facts, said, strict=True))
        if judged := _judged(asks, admissions):
            task = asyncio.create_task(self._record(judged))
            self._recording.add(task)
            task.add_done_callback(self._recording.discard)
        return [admissions[each.facts.delivery_id] for each in asks]

    async def _record(self, judged: Sequence[Judged]) -> None:
        try:
            if all(each.judgement is Judgement.ACCEPTED for each in judged):
                await self._records.submit(judged)
            else:
                # What came to nothing lets its sender's id go: that may be sent again at once.
                await self._write([judged])
        except Exception as error:  # noqa: BLE001 - the answer stands, and the worker writes it
            _log.warning(
                "Judgements were not written; the worker will ask again.",
                action="admission.not_recorded",
                deliveries=len(judged),
                cause=type(error).__name__,
            )
        self._dispatch_soon()
        crash_point(crash_points.AFTER_RECORD)

    async def _write(self, batches: Sequence[Sequence[Judged]]) -> list[None]:
        rows: dict[UUID, Judged] = {}
        for each in itertools.chain(*batches):
            known = rows.get(each.delivery_id)
            # Two judgements of one delivery say the same; one of them may know what the sender got.
            if known is None or known.response_status is None:
                rows[each.delivery_id] = each
        async with self._database.session() as tx:
            taken = await deliveries.record(tx, [rows[each] for each in sorted(rows)])
            late = [] if taken == len(rows) else await deliveries.purged(tx, sorted(rows))
        if late:
            # The purge found no runs yet, and they would wait a day for their bodies.
            await self._autopilot.withdraw(late)
        return [None] * len(batches)


def _judged(asks: Sequence[_Ask], admissions: Mapping[UUID, Admission]) -> list[Judged]:
    """Give what is to be written for requests; the worker writes its own."""
    return [
        Judged(
            ask.facts.delivery_id,
            admission.judgement,
            admission,
            None if ask.answers_with is None else _status(admission.judgement, ask.answers_with),
        )
        for ask, admission in ((each, admissions[each.facts.delivery_id]) for each in asks)
        if ask.records and admission.judgement is not None
    ]


def _status(judgement: Judgement, usual: int) -> int:
    return 404 if judgement is Judgement.UNKNOWN_ENDPOINT else usual
