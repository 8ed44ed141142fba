"""How long the queues are: what waits for its turn, for its time, and for another run."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.metrics import CallbackOptions, Observation

from reveille_heartbeat.store.queries import Q
from reveille_runtime import semconv
from reveille_runtime.db import Database
from reveille_runtime.telemetry import Telemetry

# Seconds between looks.
EVERY = 15.0


class MeasureQueues:
    """Looks now and then, and tells whoever collects what it saw last."""

    def __init__(self, db: Database, telemetry: Telemetry) -> None:
        self._db = db
        self._seen: dict[str, tuple[int, float]] = {}
        telemetry.meter.create_observable_gauge(
            semconv.METRIC_QUEUE_DEPTH,
            callbacks=[lambda options: self._observe(options, 0)],
            description="What waits in a queue",
        )
        telemetry.meter.create_observable_gauge(
            semconv.METRIC_OLDEST_AGE,
            callbacks=[lambda options: self._observe(options, 1)],
            unit="s",
            description="How long the oldest of a queue has waited; of a repeat, past its time",
        )

    async def __call__(self) -> None:
        """Look."""
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["queue_sizes"])
        self._seen = {row["queue"]: (row["depth"], max(0.0, row["oldest"] or 0.0)) for row in rows}

    def _observe(self, _options: CallbackOptions, figure: int) -> Iterator[Observation]:
        for queue, figures in self._seen.items():
            yield Observation(figures[figure], {semconv.MESSAGING_DESTINATION: queue})
