"""Have deliveries judged by autopilot, by the batch, and write what it said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
        task = asyncio.create_task(self._record(asks, admissions))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return [admissions[each.facts.delivery_id] for each in asks]

    async def _record(self, asks: Sequence[_Ask], admissions: dict[UUID, Admission]) -> None:
        judged: dict[UUID, Judged] = {}
        for ask in asks:
            delivery_id = ask.facts.delivery_id
            judgement = admissions[delivery_id].judgement
            if ask.records and judgement is not None:
                known = judged.get(delivery_id)
                status = None if ask.answers_with is None else _status(judgement, ask.answers_with)
                if known is None or known.response_status is None:
                    judged[delivery_id] = Judged(
                        delivery_id, judgement, admissions[delivery_id], status
                    )
        if not judged:
            return
        rows = sorted(judged.values(), key=lambda each: each.delivery_id)
        try:
            async with self._database.session() as tx:
                await deliveries.record(tx, rows)
        except Exception as error:  # noqa: BLE001 - the answer stands, and the worker writes it
            _log.warning(
                "Judgements were not written; the worker will ask again.",
                action="admission.not_recorded",
                deliveries=len(rows),
                cause=type(error).__name__,
            )
        self._dispatch_soon()
        crash_point(crash_points.AFTER_RECORD)


def _status(judgement: Judgement, usual: int) -> int:
    return 404 if judgement is Judgement.UNKNOWN_ENDPOINT else usual
