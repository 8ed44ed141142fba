"""Watching over rules: one whose runs nearly all fail is paused, a streak of skips is told.

It also looks at everybody's target: the feed tells of a change once, and goes on without those that
could not be judged then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import Reason
from reveille_autopilot.store import people, upkeep
from reveille_autopilot.usecases.follow_targets import TargetFollower
from reveille_autopilot.usecases.settle import Settler
from reveille_autopilot.usecases.system import NoticeKind, SystemChanges
from reveille_autopilot.usecases.telling import notice
from reveille_runtime.db import Database, Tx
from reveille_runtime.feed import append
from reveille_runtime.isolation import isolated


@dataclass(frozen=True, slots=True)
class Watchfulness:
    """When a rule counts as broken. Only what happened since it came into force counts."""

    back: timedelta = timedelta(days=7)
    least_runs: int = 50
    least_share: float = 0.9
    skip_streak: int = 10

    def is_failing(self, ended: int, failed: int) -> bool:
        """Tell whether nearly all runs failed."""
        return ended >= self.least_runs and failed >= self.least_share * ended


class Monitor:
    """Looks over all rules in force; a job of this service, executed by the scheduler."""

    def __init__(
        self,
        db: Database,
        system: SystemChanges,
        targets: TargetFollower,
        settler: Settler,
        watchfulness: Watchfulness,
    ) -> None:
        self._db = db
        self._system = system
        self._targets = targets
        self._settler = settler
        self._limits = watchfulness

    async def __call__(self) -> Mapping[str, object]:
        """Look; gives what was done, for the ledger."""
        limits = self._limits
        async with self._db.session() as tx:
            failing = await upkeep.failing(tx, limits.back, limits.least_runs, limits.least_share)
        text = f"of its runs of the last {limits.back.days} days nearly all failed"
        paused = 0
        for rule_id in failing:
            # The next look finds the one that cannot be paused again.
            with isolated("monitor.pause", autopilot_id=str(rule_id)):
                paused += await self._system.pause(
                    rule_id, Reason.HIGH_FAILURE_RATE, text, self._still_failing
                )
        notices = await self._skip_streaks()
        # Last, as it alone needs heartbeat: while that is away the scheduler asks for it all again.
        await self._targets.reconcile()
        return {"paused": paused, "notices": notices}

    async def _still_failing(self, tx: Tx, rule: Autopilot) -> bool:
        """Count again under the lock: it may have been paused and resumed meanwhile."""
        ended, failed = await upkeep.ended_since(tx, rule.id, self._limits.back)
        return self._limits.is_failing(ended, failed)

    async def _skip_streaks(self) -> int:
        async with self._db.transaction() as tx:
            streaks = await upkeep.notice_skip_streaks(
                tx, self._limits.skip_streak, self._limits.back
            )
            followers = await people.subscribers(tx, [each.autopilot_id for each in streaks])
            await append(
                tx,
                [
                    notice(
                        {
                            "autopilot_id": each.autopilot_id,
                            "workspace_id": each.workspace_id,
                            "title": each.title,
                        },
                        NoticeKind.SKIP_STREAK,
                        f"its last {self._limits.skip_streak} runs were all skipped",
                        each.reason,
                        (each.creator_user_id, *followers[each.autopilot_id]),
                    )
                    for each in streaks
                ],
            )
        if streaks:
            self._settler.tell()
        return len(streaks)
