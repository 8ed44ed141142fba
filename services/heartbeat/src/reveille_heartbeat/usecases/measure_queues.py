"""How long the queues are, and how much that nobody needs any more lies in their way."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.metrics import CallbackOptions, Observation

from reveille_heartbeat.store.queries import Q
from reveille_runtime import logs, semconv
from reveille_runtime.db import Database
from reveille_runtime.telemetry import Telemetry

_log = logs.get_logger(__name__)
# Seconds between looks.
EVERY = 15.0
# More dead rows than this, and than live ones several times over, are worth a word.
MANY_DEAD = 100_000
_TIMES_LIVE = 5


class MeasureQueues:
    """Looks now and then, and tells whoever collects what it saw last."""

    def __init__(self, db: Database, telemetry: Telemetry, *, many_dead: int = MANY_DEAD) -> None:
        self._db = db
        self._many_dead = many_dead
        self._seen: dict[str, tuple[int, float]] = {}
        self._dead: dict[str, int] = {}
        telemetry.meter.create_observable_gauge(
            semconv.METRIC_DEAD_ROWS,
            callbacks=[self._observe_dead],
            description="Versions of rows that nothing needs and nothing has removed",
        )
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
            tables = await tx.fetch(Q["dead_rows"])
        self._seen = {row["queue"]: (row["depth"], max(0.0, row["oldest"] or 0.0)) for row in rows}

        for row in tables:
            self._note_dead(row["name"], row["dead"], row["live"])

    def _note_dead(self, name: str, dead: int, live: int) -> None:
        table = f"heartbeat.{name}"
        if dead > max(self._many_dead, live * _TIMES_LIVE) >= self._dead.get(table, 0):
            _log.warning(
                "Dead rows pile up: claims slow down. Look for a transaction that stays open.",
                action="database.dead_rows",
                table=table,
                dead=dead,
                live=live,
            )
        self._dead[table] = dead

    def _observe_dead(self, _options: CallbackOptions) -> Iterator[Observation]:
        for table, dead in self._dead.items():
            yield Observation(dead, {semconv.DB_TABLE: table})

    def _observe(self, _options: CallbackOptions, figure: int) -> Iterator[Observation]:
        for queue, figures in self._seen.items():
            yield Observation(figures[figure], {semconv.MESSAGING_DESTINATION: queue})
