"""Counters over a sliding window, for many keys in bounded memory.

The window slides over two counts, this window's and the one before, weighted by how much of the
one before still lies inside. When there are too many keys, the one that was quiet longest goes.
"""

from __future__ import annotations

import math
from collections import OrderedDict


class SlidingCounters:
    """Allows `limit` hits a key in each `window` seconds; 0 allows everything.

    `now` is a moment of any clock that never goes back, in seconds. A hit may be counted late, by
    the moment its request began: it counts in the newest window that its key was hit in.
    """

    def __init__(self, limit: int, window: float = 60.0, most_keys: int = 50_000) -> None:
        self.limit = limit
        self._window = window
        self._most_keys = most_keys
        # Key: which window, its hits, the hits of the one before. Least recently hit first.
        self._counts: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, key: str, now: float) -> float:
        """Count a hit when it is allowed; else give the seconds to wait, and count nothing."""
        wait = self.check(key, now)
        if wait == 0 and self.limit > 0:
            self.add(key, now)
        return wait

    def check(self, key: str, now: float) -> float:
        """Give 0 when a hit is allowed now, else the seconds until one is."""
        if self.limit <= 0:
            return 0
        _, current, before, passed = self._counted(key, now)
        if current + before * (1 - passed) < self.limit:
            return 0
        return max(1.0, math.ceil(self._wait(current, before, passed)))

    def add(self, key: str, now: float) -> None:
        """Count a hit, allowed or not."""
        if self.limit <= 0:
            return
        at, current, before, _ = self._counted(key, now)
        self._counts[key] = (at, current + 1, before)
        self._counts.move_to_end(key)
        if len(self._counts) > self._most_keys:
            self._counts.popitem(last=False)

    def forget(self, key: str) -> None:
        """Count a key's hits no longer."""
        self._counts.pop(key, None)

    def _counted(self, key: str, now: float) -> tuple[int, int, int, float]:
        """Give the window, its hits, those of the one before, and how much of it has passed."""
        at = int(now // self._window)
        passed = now / self._window - at
        window, current, before = self._counts.get(key, (at, 0, 0))
        if window > at:
            return window, current, before, 0.0
        if window == at:
            return at, current, before, passed
        return at, 0, current if window == at - 1 else 0, passed

    def _wait(self, current: int, before: int, passed: float) -> float:
        if current < self.limit:
            # The older hits slide out while this window lasts.
            allowed_at = 1 - (self.limit - current) / before
            return (allowed_at - passed) * self._window
        return (1 - passed + 1 - self.limit / current) * self._window


class Sampler:
    """Picks what is kept of something that may come in floods: all at first, then a sample."""

    def __init__(self, limit: int, one_in: int = 100) -> None:
        self._counters = SlidingCounters(limit)
        self._one_in = one_in
        self._beyond = 0

    def keeps(self, key: str, now: float) -> bool:
        """Tell whether this one is kept."""
        if self._counters.take(key, now) == 0:
            return True
        self._beyond += 1
        return self._beyond % self._one_in == 0


class FairSampler:
    """Picks of what comes from many senders: one that floods does not cost the others their place.

    A key's places are whoever's comes first. Beyond them a sender of whom nothing was kept lately
    still has one, out of as many again for all such senders: as many addresses as there may be
    take no more than that.
    """

    def __init__(self, limit: int, one_in: int = 100, most_senders: int = 50_000) -> None:
        self._places = Sampler(limit, one_in)
        self._newcomers = SlidingCounters(limit)
        # Only those of whom something was kept: what is not kept takes no room either.
        self._known = SlidingCounters(1, most_keys=most_senders)

    def __len__(self) -> int:
        return len(self._known)

    def keeps(self, key: str, sender: str, now: float) -> bool:
        """Tell whether this one is kept."""
        who = f"{key} {sender}"
        if self._places.keeps(key, now):
            self._known.take(who, now)
            return True
        if self._newcomers.check(key, now) or self._known.take(who, now):
            return False
        self._newcomers.add(key, now)
        return True
