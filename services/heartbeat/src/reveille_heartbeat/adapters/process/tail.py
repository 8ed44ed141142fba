"""Following an agent's output files: every byte once, in order, secrets blanked out."""

from __future__ import annotations

from collections.abc import Mapping

from reveille_heartbeat.adapters.contract import Reporter
from reveille_heartbeat.adapters.spool import Spool
from reveille_heartbeat.domain.redaction import Redactor
from reveille_heartbeat.domain.values import LogStream

CHUNK = 65_536
# Pieces of one stream between two looks at whether the attempt is to end.
_BURST = 8


class Tail:
    """Passes on what was written since the last look.

    Offsets are those of the files, so a new executor goes on where the stored log ends.
    """

    def __init__(
        self,
        spool: Spool,
        redactor: Redactor,
        ends: Mapping[LogStream, int],
        limit: int,
        reporter: Reporter,
    ) -> None:
        self._spool = spool
        self._redactor = redactor
        self._limit = limit
        self._reporter = reporter
        # More than any secret, so that a piece is never just the beginning of one.
        self._piece = CHUNK + redactor.longest
        self._at = {stream: ends.get(stream, 0) for stream in LogStream}
        self.over_limit = False

    async def pump(self, *, final: bool = False) -> bool:
        """Pass on what is new; tell whether there was any. `final`: nothing more will come."""
        heard = False
        for stream in LogStream:
            steps = 0
            # An agent may write faster than we store, and is to be stopped all the same.
            while (final or steps < _BURST) and await self._step(stream, final=final):
                heard, steps = True, steps + 1
        return heard

    async def _step(self, stream: LogStream, *, final: bool) -> bool:
        start = self._at[stream]
        size = self._spool.output_size(stream)
        # By its size, long before all of it is stored: an agent fills the disk faster than that.
        self.over_limit = self.over_limit or size > self._limit
        if size <= start:
            return False
        # A piece is stored in parts, so another executor may have died inside a secret: its
        # beginning is looked at again, or nobody would recognise the rest.
        known = min(start, max(0, self._redactor.longest - 1))
        begin = start - known
        data = self._spool.read_output(stream, begin, known + self._piece)
        within = max(0, self._limit - begin)
        # The end may be the beginning of a secret whose rest is still to come, or is cut off.
        complete = final and len(data) < known + self._piece and len(data) <= within
        data = data[:within]
        kept = len(data) if complete else self._redactor.safe_length(data)
        if kept <= known:
            return False
        await self._reporter.log(stream, start, self._redactor.redact(data[:kept])[known:])
        self._at[stream] = begin + kept
        return True
