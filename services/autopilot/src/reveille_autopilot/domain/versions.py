"""Rule versions: the full text of a rule at one moment, and who published it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot, ScheduleConfig, Trigger
from reveille_autopilot.domain.states import AutopilotStatus, Change, ExecutionMode, OverlapPolicy


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """What the rule said, published by whom; never changed afterwards."""

    id: UUID
    autopilot_id: UUID
    workspace_id: UUID
    sequence: int
    change: Change
    # None is the system itself.
    publisher_user_id: str | None
    title: str
    prompt: str
    issue_title_template: str
    agent_id: UUID | None
    squad_id: UUID | None
    project_id: UUID | None
    execution_mode: ExecutionMode
    overlap_policy: OverlapPolicy
    status: AutopilotStatus
    triggers: tuple[dict[str, object], ...]
    created_at: datetime


def snapshot(
    autopilot: Autopilot,
    triggers: Iterable[Trigger],
    *,
    version_id: UUID,
    change: Change,
    publisher_user_id: str | None,
    now: datetime,
) -> RuleVersion:
    """Write down the rule as it stands with its live triggers."""
    return RuleVersion(
        id=version_id,
        autopilot_id=autopilot.id,
        workspace_id=autopilot.workspace_id,
        sequence=autopilot.rule_sequence,
        change=change,
        publisher_user_id=publisher_user_id,
        title=autopilot.title,
        prompt=autopilot.prompt,
        issue_title_template=autopilot.issue_title_template,
        agent_id=autopilot.agent_id,
        squad_id=autopilot.squad_id,
        project_id=autopilot.project_id,
        execution_mode=autopilot.execution_mode,
        overlap_policy=autopilot.overlap_policy,
        status=autopilot.status,
        triggers=tuple(
            trigger_facts(trigger)
            for trigger in sorted(triggers, key=lambda each: each.id)
            if trigger.deleted_at is None
        ),
        created_at=now,
    )


def trigger_facts(trigger: Trigger) -> dict[str, object]:
    """Return a trigger's configuration; its address and its secrets are not part of it."""
    facts: dict[str, object] = {
        "trigger_id": str(trigger.id),
        "kind": trigger.kind.value,
        "enabled": trigger.enabled,
        "label": trigger.label,
        "publisher_user_id": trigger.publisher_user_id,
    }
    if isinstance(trigger.config, ScheduleConfig):
        once = trigger.config.run_at
        return facts | {
            "cron": trigger.config.cron,
            "time_zone": trigger.config.time_zone,
            "run_at": None if once is None else once.isoformat(),
        }
    return facts | {
        "provider": trigger.config.provider,
        "event_filters": [wanted.as_json() for wanted in trigger.config.event_filters],
        "max_body_bytes": trigger.config.max_body_bytes,
        "options": dict(trigger.config.options),
    }


class Restamp(StrEnum):
    """Whose triggers the editor takes responsibility for."""

    ALL = "all"
    ONE = "one"
    NONE = "none"


def restamps(change: Change) -> Restamp:
    """Say what an edit moves responsibility for: an edit of a trigger, that trigger alone."""
    match change:
        case Change.UPDATED | Change.PAUSED | Change.RESUMED | Change.ARCHIVED:
            return Restamp.ALL
        case (
            Change.TRIGGER_CREATED
            | Change.TRIGGER_UPDATED
            | Change.TOKEN_ROTATED
            | Change.SECRET_ADDED
            | Change.SECRET_REMOVED
        ):
            return Restamp.ONE
        case Change.CREATED | Change.RENAMED | Change.TRIGGER_DELETED | Change.RETARGETED:
            return Restamp.NONE
        case _:
            assert_never(change)
