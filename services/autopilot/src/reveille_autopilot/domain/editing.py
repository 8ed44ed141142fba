"""Edits: which fields they name, and what a change of them means for who answers for the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from reveille_autopilot.domain.models import Autopilot, ScheduleConfig, Trigger
from reveille_autopilot.domain.states import Change

# A change of one of these makes the editor answer for all triggers.
SUBSTANTIVE = (
    "prompt",
    "issue_title_template",
    "agent_id",
    "squad_id",
    "execution_mode",
    "overlap_policy",
)
# A change of these is recorded, and moves no responsibility.
COSMETIC = ("title", "project_id")


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """The fields of a rule that an edit names, and their new values."""

    autopilot_id: UUID
    etag: str
    values: Mapping[str, Any] = field(default_factory=dict)
    # The whole list, where it is named.
    subscribers: tuple[str, ...] | None = None

    def applied(self, rule: Autopilot) -> Autopilot:
        """Give the rule as it shall be; work that goes to an agent leaves the squad, and back."""
        values = dict(self.values)
        if values.get("agent_id") is not None:
            values["squad_id"] = None
        elif values.get("squad_id") is not None:
            values["agent_id"] = None
        return replace(rule, **values)


@dataclass(frozen=True, slots=True)
class TriggerEdit:
    """The fields of a trigger that an edit names, and their new values."""

    trigger_id: UUID
    etag: str
    label: str | None = None
    enabled: bool | None = None
    # Fields of its configuration.
    config: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, trigger: Trigger, now: datetime) -> Trigger:
        """Give the trigger as it shall be; what fell due before it came back does not count."""
        config = replace(trigger.config, **self.config)
        if isinstance(config, ScheduleConfig):
            if self.config.get("cron"):
                config = replace(config, run_at=None)
            elif self.config.get("run_at") is not None:
                config = replace(config, cron="")
        after = replace(
            trigger,
            config=config,
            label=trigger.label if self.label is None else self.label,
            enabled=trigger.enabled if self.enabled is None else self.enabled,
        )
        if _fires_anew(trigger, after):
            return replace(after, effective_from=max(trigger.effective_from, now))
        return after


def change_of(before: Autopilot, after: Autopilot) -> Change | None:
    """Say what an edit did to a rule, by comparing; None when no version has to record it."""
    if _differs(before, after, SUBSTANTIVE):
        return Change.UPDATED
    return Change.RENAMED if _differs(before, after, COSMETIC) else None


def target_changed(before: Autopilot, after: Autopilot) -> bool:
    """Tell whether others are to work from now on."""
    return _differs(before, after, ("agent_id", "squad_id", "project_id"))


def sets_off_otherwise(before: Trigger, after: Trigger) -> bool:
    """Tell whether an edit changed what sets the rule off; a new label does not."""
    return _differs(before, after, ("enabled", "config"))


def _fires_anew(before: Trigger, after: Trigger) -> bool:
    if not isinstance(after.config, ScheduleConfig):
        return False
    return before.config != after.config or (after.enabled and not before.enabled)


def _differs(before: object, after: object, names: tuple[str, ...]) -> bool:
    return any(getattr(before, name) != getattr(after, name) for name in names)
