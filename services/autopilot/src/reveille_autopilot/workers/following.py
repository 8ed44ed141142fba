"""Following heartbeat's feed: outcomes of runs, and changes of those who work."""

from __future__ import annotations

from collections.abc import Sequence

from reveille.events.v1 import event_service_pb2 as pb
from reveille_autopilot.usecases.follow import Follower
from reveille_autopilot.usecases.follow_targets import TargetFollower
from reveille_autopilot.usecases.sweep import Sweep


class Following:
    """Hands events to those they concern."""

    def __init__(self, runs: Follower, targets: TargetFollower, sweep: Sweep) -> None:
        self._runs = runs
        self._targets = targets
        self._sweep = sweep

    async def handle(self, events: Sequence[pb.Event]) -> None:
        """Act on a batch; repeating it changes nothing."""
        await self._runs.handle(events)
        await self._targets.handle(events)

    async def reconcile(self) -> None:
        """Compare everything: the feed cannot tell what was missed."""
        await self._sweep.reconcile()
        await self._targets.reconcile()
