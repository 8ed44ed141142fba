"""Have deliveries judged by autopilot, by the batch, and write what it said."""

from __future__ import annotations

import asyncio
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
_Said = tuple[Sequence["_Ask"], Mapping[UUID, Admission]]
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

    For requests the judgement is written here, so that a resend and the worker find it, while the
    answer is on its way: what it says is on record with autopilot. Failing to write it changes
    nothing: whoever asks again hears the same.
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
        self._records: Batcher[_Said, None] = Batcher(
            "judgements",
            self._write,
            max_items=8,
            max_in_flight=1,
            gather=GATHER_SECONDS,
            linger=_RECORD_LINGER_SECONDS,
            # What is not written the worker repairs.
            transient=lambda _: False,
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
        if any(each.records for each in asks):
            task = asyncio.create_task(self._record((asks, admissions)))
            self._recording.add(task)
            task.add_done_callback(self._recording.discard)
        return [admissions[each.facts.delivery_id] for each in asks]

    async def _record(self, said: _Said) -> None:
        try:
            if all(each.judgement is Judgement.ACCEPTED for each in said[1].values()):
                await self._records.submit(said)
            else:
                # What came to nothing lets its sender's id go: that may be sent again at once.
                await self._write([said])
        except Exception as error:  # noqa: BLE001 - the answer stands, and the worker writes it
            _log.warning(
                "Judgements were not written; the worker will ask again.",
                action="admission.not_recorded",
                deliveries=len(said[1]),
                cause=type(error).__name__,
            )
        self._dispatch_soon()
        crash_point(crash_points.AFTER_RECORD)

    async def _write(self, batches: Sequence[_Said]) -> list[None]:
        judged: dict[UUID, Judged] = {}
        for asks, admissions in batches:
            for ask in asks:
                found = _judged(ask, admissions[ask.facts.delivery_id])
                known = None if found is None else judged.get(found.delivery_id)
                if found is not None and (known is None or known.response_status is None):
                    judged[found.delivery_id] = found
        if judged:
            rows = sorted(judged.values(), key=lambda each: each.delivery_id)
            async with self._database.session() as tx:
                await deliveries.record(tx, rows)
        return [None] * len(batches)


def _judged(ask: _Ask, admission: Admission) -> Judged | None:
    judgement = admission.judgement
    if not ask.records or judgement is None:
        return None
    status = None if ask.answers_with is None else _status(judgement, ask.answers_with)
    return Judged(ask.facts.delivery_id, judgement, admission, status)


def _status(judgement: Judgement, usual: int) -> int:
    return 404 if judgement is Judgement.UNKNOWN_ENDPOINT else usual
