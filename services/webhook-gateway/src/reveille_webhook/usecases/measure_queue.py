"""How much waits to be dispatched, and how long its oldest has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opentelemetry.metrics import CallbackOptions, Observation

from reveille_runtime import semconv
from reveille_runtime.db import Database
from reveille_runtime.telemetry import Telemetry
from reveille_webhook.store import queue
from reveille_webhook.usecases.trace import QUEUE

# Seconds between looks.
EVERY = 15.0


class MeasureQueue:
    """Looks now and then, and tells whoever collects what it saw last."""

    def __init__(self, database: Database, telemetry: Telemetry) -> None:
        self._database = database
        self._seen = queue.Backlog(0, 0.0, 0)
        for name, unit, text, figure in (
            (semconv.METRIC_QUEUE_DEPTH, "1", "Deliveries that are due", "due"),
            (semconv.METRIC_OLDEST_AGE, "s", "How long the oldest of them is due", "oldest"),
            (semconv.METRIC_HELD_NOW, "1", "Deliveries that are held", "held"),
        ):
            telemetry.meter.create_observable_gauge(
                name, callbacks=[self._observer(figure)], unit=unit, description=text
            )

    async def __call__(self) -> None:
        """Look."""
        async with self._database.session() as tx:
            self._seen = await queue.backlog(tx)

    def _observer(self, figure: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            yield Observation(getattr(self._seen, figure), {semconv.MESSAGING_DESTINATION: QUEUE})

        return observe
