"""Changes that the system makes: a pause with its reason, and work that goes to another agent.

Each is a version published by nobody, takes no trigger from its publisher, and is told to those who
follow the rule. Nothing is ever put in force again by the system.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot
from reveille_autopilot.domain.states import AutopilotStatus, Change, Reason
from reveille_autopilot.store import autopilots, people, triggers
from reveille_autopilot.usecases.publish import publish
from reveille_autopilot.usecases.settle import Settler
from reveille_autopilot.usecases.telling import notice
from reveille_runtime import logs
from reveille_runtime.crash import crash_point
from reveille_runtime.db import Database, Tx, retrying_transaction
from reveille_runtime.feed import append
from reveille_runtime.lockorder import LockOrder

Still = Callable[[Tx, Autopilot], Awaitable[bool]]
_log = logs.get_logger(__name__)


class NoticeKind(StrEnum):
    """What people are told."""

    AUTO_PAUSED = "auto_paused"
    RETARGETED = "retargeted"
    SKIP_STREAK = "skip_streak"


class SystemChanges:
    """Makes the changes, each once: a second replica finds it done under the lock."""

    def __init__(self, db: Database, settler: Settler) -> None:
        self._db = db
        self._settler = settler

    async def pause(
        self, autopilot_id: UUID, reason: Reason, message: str, still: Still | None = None
    ) -> bool:
        """Take a rule out of force, if it is and `still` holds under its lock."""

        async def write(tx: Tx) -> bool:
            rule = await autopilots.lock(tx, LockOrder(), autopilot_id)
            if rule is None or rule.status is not AutopilotStatus.ACTIVE:
                return False
            if still is not None and not await still(tx, rule):
                return False
            now = await autopilots.now(tx)
            await triggers.touch_schedules(tx, rule.id, now)
            after = replace(rule, status=AutopilotStatus.PAUSED, pause_reason=reason.value)
            await publish(tx, rule, Change.PAUSED, None, now, after=after)
            await self._notice(tx, rule, NoticeKind.AUTO_PAUSED, message, reason)
            return True

        return await self._made(autopilot_id, write, "autopilot.auto_paused", reason)

    async def retarget(self, autopilot_id: UUID, squad_id: UUID, agent_id: UUID) -> bool:
        """Give the work of an archived squad to the agent that led it."""

        async def write(tx: Tx) -> bool:
            rule = await autopilots.lock(tx, LockOrder(), autopilot_id)
            if rule is None or rule.squad_id != squad_id:
                return False
            if rule.status is AutopilotStatus.ARCHIVED:
                return False
            now = await autopilots.now(tx)
            after = replace(rule, agent_id=agent_id, squad_id=None)
            await publish(tx, rule, Change.RETARGETED, None, now, after=after)
            text = "its squad was archived; the agent that led it works from now on"
            await self._notice(tx, rule, NoticeKind.RETARGETED, text, None)
            return True

        return await self._made(autopilot_id, write, "autopilot.retargeted", None)

    async def _made(
        self,
        autopilot_id: UUID,
        write: Callable[[Tx], Awaitable[bool]],
        action: str,
        reason: Reason | None,
    ) -> bool:
        made = await retrying_transaction(self._db, write, repeatable=True)
        crash_point("autopilot.publish.after_commit")
        if made:
            self._settler.tell()
            _log.warning(
                "The system changed an autopilot.",
                action=action,
                autopilot_id=str(autopilot_id),
                reason=None if reason is None else reason.value,
            )
        return made

    async def _notice(
        self, tx: Tx, rule: Autopilot, kind: NoticeKind, message: str, reason: Reason | None
    ) -> None:
        followers = (await people.subscribers(tx, [rule.id]))[rule.id]
        subject = {
            "autopilot_id": rule.id,
            "workspace_id": rule.workspace_id,
            "title": rule.title,
        }
        to = (rule.creator_user_id, *followers)
        await append(
            tx, [notice(subject, kind, message, None if reason is None else reason.value, to)]
        )
