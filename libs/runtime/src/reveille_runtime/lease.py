"""Leases: who may write to a claimed row, for how long, and when another may take it over.

The row holds a token, fresh for each claim and NULL unless held, and an expiry by the database's
clock. **The fence is id and token**: a holder's write says `WHERE id = $1 AND lease_token = $2`
and nothing else, and a write that touches no row means the lease is lost. Clocks of this process
only decide when to stop trusting a lease (early, on the monotonic clock); only the database
decides that it has expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from reveille_runtime import logs
from reveille_runtime.errors import Aborted

T = TypeVar("T")
_log = logs.get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Lease:
    """The fence of one claim: the row and the token that the claim wrote into it."""

    id: UUID
    token: UUID


class LeaseLost(Aborted):
    """The row may belong to somebody else: stop writing, re-read it."""

    def __init__(self, lease: Lease) -> None:
        super().__init__("LEASE_LOST", f"the lease on {lease.id} is lost", {"id": str(lease.id)})
        self.lease = lease


class Held:
    """A lease while its holder works under it."""

    def __init__(
        self, lease: Lease, renewed_at: float, duration: float, keeper: LeaseKeeper
    ) -> None:
        self.lease = lease
        self.duration = duration
        self.lost = asyncio.Event()
        self.renewed_at = renewed_at
        self._keeper = keeper
        self._guarded: asyncio.Task[Any] | None = None

    def check(self) -> None:
        """Pass only while the lease can be trusted; call it before every outward effect.

        Raises:
            LeaseLost: it is lost, or has not been renewed for two thirds of its duration.
        """
        if not self.lost.is_set() and self._keeper.is_stale(self):
            self.lose()
        if self.lost.is_set():
            raise LeaseLost(self.lease)

    def release(self) -> None:
        """Take the lease out of renewal; call it right before the write that clears the token.

        Otherwise a renewal that meets the finished row would report the lease as lost.
        """
        self._keeper.forget(self)

    def lose(self) -> None:
        """Mark it as lost, and stop the work that is guarded by it."""
        self.lost.set()
        guarded, self._guarded = self._guarded, None
        # Work that finds out by itself ends by what `check` raises.
        if guarded is not None and guarded is not asyncio.current_task():
            guarded.cancel()

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that must stop when the lease is lost: it is cancelled and LeaseLost raised.

        It runs in the caller's own task, and nothing of it runs on after the return: a task or
        two more for each lease would cost more than most work.
        """
        task = asyncio.current_task()
        if task is None or self.lost.is_set():
            work.close()
            raise LeaseLost(self.lease)
        self._guarded = task
        try:
            return await work
        except asyncio.CancelledError:
            stopped = not self._is_guarding() and self.lost.is_set()
            # Somebody else may want the caller to end, and be heard.
            if stopped and task.uncancel() == 0:
                raise LeaseLost(self.lease) from None
            raise
        finally:
            self._guarded = None

    def _is_guarding(self) -> bool:
        return self._guarded is not None


class LeaseKeeper:
    """Renews all leases of this process in one statement per round.

    `renew` sets a new expiry on the rows whose id and token match and returns the ids that did;
    it must run its statement for an empty list too, since a round is also the proof that the
    database answers. `duration` and `interval` are seconds; the interval is at most a third of
    the duration, and rounds come sooner while a shorter lease is held. `run` is the loop; `tick` is
    one round of it.
    """

    def __init__(
        self,
        renew: Callable[[Sequence[Lease]], Awaitable[Collection[UUID]]],
        *,
        duration: float,
        interval: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.duration = duration
        self.interval = duration / 4 if interval is None else interval
        if not 0 < self.interval <= duration / 3:
            raise ValueError(f"a lease of {duration} s cannot be renewed every {self.interval} s")
        self._renew = renew
        self._monotonic = monotonic
        self._held: dict[UUID, Held] = {}
        # Renewals that were given up and have not ended yet.
        self._left: set[asyncio.Future[Collection[UUID]]] = set()
        # Set when a lease is taken that cannot wait for the round that is planned.
        self._sooner = asyncio.Event()
        self._last_success: float | None = None
        self._last_failure: float | None = None
        self._healthy = False

    @contextlib.asynccontextmanager
    async def hold(
        self, lease: Lease, *, since: float | None = None, duration: float | None = None
    ) -> AsyncIterator[Held]:
        """Keep the lease renewed inside the block.

        `since` is `keeper.now()` from before the claim was sent: without it the time the claim took
        is not counted. `duration` is this lease's own length in seconds, where leases differ;
        `renew` must keep it. The block's end stops the renewal; it does not touch the row.
        """
        own = self.duration if duration is None else duration
        held = Held(lease, self.now() if since is None else since, own, self)
        previous = self._held.get(lease.id)
        if previous is not None:
            # The row was claimed anew, so the older claim cannot hold it any more.
            previous.lose()
        self._held[lease.id] = held
        if own < self.interval * 3:
            self._sooner.set()
        try:
            yield held
        finally:
            self.forget(held)

    def now(self) -> float:
        """Read the monotonic clock that leases are measured by."""
        return self._monotonic()

    @property
    def held(self) -> tuple[Lease, ...]:
        """The leases under renewal."""
        return tuple(held.lease for held in self._held.values())

    def forget(self, held: Held) -> None:
        """Stop renewing a lease; does nothing when it is not under renewal."""
        if self._held.get(held.lease.id) is held:
            del self._held[held.lease.id]

    def is_stale(self, held: Held) -> bool:
        """Tell whether two thirds of the duration passed since the last successful renewal."""
        return self.now() - held.renewed_at >= held.duration * 2 / 3

    def ok_for(self, seconds: float) -> bool:
        """Tell whether, in the last `seconds`, a round began and succeeded and none failed."""
        horizon = self.now() - seconds
        succeeded = self._last_success is not None and self._last_success >= horizon
        failed = self._last_failure is not None and self._last_failure >= horizon
        return self._healthy and succeeded and not failed

    async def run(self) -> None:
        """Renew for ever; a failed round is repeated soon, so that all live holders return fast."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            # A little early, so that every stretch of `interval` seconds holds a whole round.
            share = 0.9 if await self.tick() else 0.25
            while (left := began + self._rhythm() * share - loop.time()) > 0:
                self._sooner.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._sooner.wait()

    async def tick(self) -> bool:
        """Renew every lease once, mark those that are lost; tell whether the database answered."""
        self._lose_stale()
        asked = self.now()
        round_of = list(self._held.values())
        try:
            renewed = frozenset(await self._in_time([held.lease for held in round_of]))
        except Exception as error:  # noqa: BLE001 - any failure means "not renewed"
            self._last_failure = self.now()
            self._healthy = False
            _log.warning(
                "Leases were not renewed.",
                action="lease.renewal_failed",
                leases=len(round_of),
                cause=type(error).__name__,
            )
        else:
            self._last_success = asked
            self._healthy = True
            for held in round_of:
                if held.lease.id in renewed:
                    held.renewed_at = max(held.renewed_at, asked)
                elif self._held.get(held.lease.id) is held:
                    self._lose(held, "taken")
        self._lose_stale()
        return self._healthy

    def _rhythm(self) -> float:
        """How often to renew now: at least three times in the life of the shortest lease."""
        return min([self.interval, *(held.duration / 3 for held in self._held.values())])

    async def _in_time(self, leases: Sequence[Lease]) -> Collection[UUID]:
        """Renew, or give up in time: a renewal that does not even hear that is left behind."""
        renewing = asyncio.ensure_future(self._renew(leases))
        try:
            await asyncio.wait({renewing}, timeout=self._patience())
        finally:
            if not renewing.done():
                renewing.cancel()
                self._left.add(renewing)
                renewing.add_done_callback(self._forget_left)
        if not renewing.done():
            raise TimeoutError
        return renewing.result()

    def _forget_left(self, renewing: asyncio.Future[Collection[UUID]]) -> None:
        self._left.discard(renewing)
        if not renewing.cancelled():
            # Looked at, so that nobody reports an error that came too late to matter.
            renewing.exception()

    def _patience(self) -> float:
        """How long a round may take: one that hangs must leave a lease time for another."""
        now = self.now()
        stale_in = (held.renewed_at + held.duration * 2 / 3 - now for held in self._held.values())
        return min([self.interval, *(left / 2 for left in stale_in)])

    def _lose_stale(self) -> None:
        for held in list(self._held.values()):
            if self.is_stale(held):
                self._lose(held, "not renewed in time")

    def _lose(self, held: Held, why: str) -> None:
        held.lose()
        self.forget(held)
        _log.warning("A lease is lost.", action="lease.lost", id=str(held.lease.id), cause=why)


class ExpiryWitness:
    """Decides which expired leases may be taken over.

    One look is not enough: after an outage of the database, or a jump of its clock, every lease
    looks expired although its holder lives. A lease is confirmed when the same token is seen
    expired on two looks at least `interval` seconds apart (the holders' renewal interval), while
    this process' own renewals succeeded. The take-over itself is a compare-and-set on the
    confirmed token and on `lease_expires_at < (SELECT clock())`.
    """

    def __init__(self, interval: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.interval = interval
        self._monotonic = monotonic
        self._first_seen: dict[Lease, float] = {}

    def observe(self, expired: Collection[Lease], renewals_ok: bool) -> list[Lease]:
        """Take note of all leases that are expired now; give those that are confirmed.

        `renewals_ok` is `keeper.ok_for(witness.interval)`; a look without it counts as the first.
        """
        now = self._monotonic()
        known = self._first_seen if renewals_ok else {}
        self._first_seen = {lease: known.get(lease, now) for lease in expired}
        return [lease for lease, seen in self._first_seen.items() if now - seen >= self.interval]
