"""Claiming: which workspaces an executor takes runs from, and how many from each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from reveille_heartbeat.crash_points import CLAIM_AFTER_COMMIT, CLAIM_BEFORE_COMMIT
from reveille_heartbeat.domain.limits import RunLimits
from reveille_heartbeat.domain.places import Executor
from reveille_heartbeat.domain.queue import MAX_CLAIMED_BYTES
from reveille_heartbeat.store.queries import Q
from reveille_heartbeat.usecases import channels
from reveille_heartbeat.usecases.runs.claiming import ClaimBatch, Claimed
from reveille_heartbeat.usecases.runs.loaded import Loaded
from reveille_heartbeat.usecases.wakeups.promote_deferred import Promotion
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.hints import Notifier
from reveille_runtime.isolation import isolated

_WORKSPACES = 1000
# A call that meets so many workspaces in trouble leaves the rest to the next one: each may have
# waited for a lock, and recovery waits for the call.
_MOST_IN_TROUBLE = 3


def _nobody(_runs: Sequence[Loaded]) -> None:
    """Leave what was claimed to whoever gets the answer."""


class ClaimRuns:
    """Claims for one executor; no workspace's queue starves another's."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        lease: timedelta,
        notifier: Notifier,
        promotion: Promotion,
        new_token: Callable[[], UUID],
        limits: RunLimits = RunLimits(),  # noqa: B008 (a value, and it is frozen)
    ) -> None:
        self._db = db
        self._executor = executor
        self._lease = lease
        self._notifier = notifier
        self._promotion = promotion
        self._new_token = new_token
        self._limits = limits
        self._last: UUID | None = None
        # Whether the last call left something that is worth another look at once.
        self.more = False

    async def __call__(
        self, limit: int, launch: Callable[[Sequence[Loaded]], None] = _nobody
    ) -> list[Loaded]:
        """Claim up to `limit` runs; fewer does not mean that the queue is empty.

        `launch` gets each batch as soon as it is committed: these runs are ours by then, and must
        not depend on what becomes of the next workspace's.
        """
        async with self._db.session() as tx:
            rows = await tx.fetch(Q["waiting_workspaces"], _WORKSPACES)
        waiting = self._in_turn([row["workspace_id"] for row in rows])
        self.more = False
        bytes_room = MAX_CLAIMED_BYTES
        claimed: list[Loaded] = []
        # They are not asked twice in one call.
        in_trouble: set[UUID] = set()
        # First a fair share for each; then whoever wanted more shares what is left.
        while waiting and len(claimed) < limit:
            unserved: list[UUID] = []
            for at, workspace_id in enumerate(waiting):
                left = limit - len(claimed)
                if left == 0:
                    break
                share = max(1, left // (len(waiting) - at))
                # Whatever comes of it: what always fails must not be the first to be asked again.
                self._last = workspace_id
                in_trouble.add(workspace_id)
                with isolated("claim", workspace_id=str(workspace_id)):
                    batch = await self._claim(workspace_id, share, bytes_room)
                    in_trouble.discard(workspace_id)
                    claimed += batch.runs
                    launch(batch.runs)
                    bytes_room -= batch.told_bytes
                    self.more |= batch.refused > 0
                    if len(batch.runs) >= share:
                        unserved.append(workspace_id)
                if len(in_trouble) == _MOST_IN_TROUBLE:
                    # The next call goes on after it; at once, if not all of them fail.
                    self.more |= bool(claimed)
                    return claimed
                if bytes_room <= 0:
                    # These are taken on before any others are read; the next call goes on here.
                    self.more = True
                    return claimed
            waiting = unserved
        return claimed

    def _in_turn(self, workspaces: list[UUID]) -> list[UUID]:
        """Go on after the workspace asked last, so that a full queue starves nobody."""
        last = self._last
        if last is None:
            return workspaces
        later = [each for each in workspaces if each > last]
        return later + [each for each in workspaces if each <= last]

    async def _claim(self, workspace_id: UUID, limit: int, bytes_room: int) -> Claimed:
        async def claim(tx: Tx) -> Claimed:
            batch = ClaimBatch(
                tx, self._executor, self._lease, self._promotion, self._new_token, self._limits
            )
            claimed = await batch.run(workspace_id, limit, bytes_room)
            crash_point(CLAIM_BEFORE_COMMIT)
            return claimed

        # Not repeated after an unknown COMMIT: recovery finds what it may have claimed.
        claimed = await retrying_transaction(self._db, claim)
        if claimed.runs:
            crash_point(CLAIM_AFTER_COMMIT)
        if claimed.runs or claimed.refused:
            self._notifier.notify(channels.FEED)
        return claimed
