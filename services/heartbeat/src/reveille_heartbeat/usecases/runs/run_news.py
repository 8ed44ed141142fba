"""What is new about runs: how they moved, their events, their output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from reveille_heartbeat.domain.tail import Happened, Moved, News, Over, Position, Said, Version
from reveille_heartbeat.domain.values import LogStream, Run
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.store.rows import to_run
from reveille_heartbeat.usecases.runs.log_store import LogPlace, LogStore
from reveille_runtime.db import Database

_EVENTS = 100
_PIECES = 4


@dataclass(frozen=True, slots=True)
class Seen:
    """What somebody knows of a run already; `output`: whether it wants to know of that at all."""

    run_id: UUID
    position: Position
    version: Version | None
    output: bool


@dataclass(frozen=True, slots=True)
class RunNews:
    """A page of news; `more`: there is more at once."""

    run: Run
    news: tuple[News, ...]
    more: bool


class ReadNews:
    """Three statements, however many runs are asked about."""

    def __init__(self, db: Database, log: LogStore) -> None:
        self._db = db
        self._log = log

    async def __call__(self, wanted: Sequence[Seen]) -> list[RunNews | None]:
        """Give what is new to each; None where there is no such run."""
        async with self._db.session() as tx:
            # First the runs: what is written after this look is found by the next one, so that an
            # end is told only after everything that came before it.
            found = await tx.fetch(Q["watched_runs"], [seen.run_id for seen in wanted])
            events = await tx.fetch(
                Q["events_after"],
                [seen.run_id for seen in wanted],
                [seen.position.event for seen in wanted],
                _EVENTS,
            )
        rows = {row["run_id"]: (to_run(row), row["event_seq"], row["progress_at"]) for row in found}
        happened: list[list[Happened]] = [[] for _ in wanted]
        for row in events:
            happened[row["place"] - 1].append(
                Happened(row["seq"], row["type"], row["message"], row["facts"], row["created_at"])
            )
        said = await self._output(wanted, {run_id: run for run_id, (run, *_) in rows.items()})
        answer: list[RunNews | None] = []
        for at, seen in enumerate(wanted):
            if seen.run_id not in rows:
                answer.append(None)
                continue
            run, seq, progress_at = rows[seen.run_id]
            version = (seq, run.follow_up_done_at is not None, progress_at)
            news: list[News] = [Moved(run, version)] if version != seen.version else []
            news += [*happened[at], *said[at]]
            more = len(happened[at]) == _EVENTS or _is_full(said[at])
            if run.follow_up_done_at is not None and not more:
                news.append(Over())
            answer.append(RunNews(run, tuple(news), more))
        return answer

    async def ends(self, run_id: UUID) -> Mapping[LogStream, int]:
        """Tell how far each stream of a run goes by now."""
        return await self._log.ends(run_id)

    async def _output(self, wanted: Sequence[Seen], runs: dict[UUID, Run]) -> list[list[Said]]:
        found: list[list[Said]] = [[] for _ in wanted]
        owners: list[int] = []
        places: list[LogPlace] = []
        for at, seen in enumerate(wanted):
            run = runs.get(seen.run_id)
            # Nothing is said before an agent begins.
            if not seen.output or run is None or run.started_at is None:
                continue
            for stream in LogStream:
                owners.append(at)
                offset = seen.position.offset(stream)
                places.append(LogPlace(run.run_id, run.created_at, stream, offset))
        if not places:
            return found
        read = await self._log.read(places, _PIECES)
        for at, place, pieces in zip(owners, places, read, strict=True):
            found[at] += [Said(place.stream, piece.offset, piece.data) for piece in pieces]
        return found


def _is_full(said: Sequence[Said]) -> bool:
    return any(sum(1 for each in said if each.stream is stream) == _PIECES for stream in LogStream)
