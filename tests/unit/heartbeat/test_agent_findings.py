"""What `why` says of an agent: the first thing in its way, its day, and its timer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, NOW

from reveille_heartbeat.domain.limits import NOTHING_TODAY, Today
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import HeartbeatPolicy
from reveille_heartbeat.usecases.why.agent_findings import Standing, about_agent
from reveille_runtime.explain import Finding

PAUSED: dict[str, Any] = {"state": AgentState.PAUSED, "pause_reason": "holidays"}
EVERY_MINUTE = HeartbeatPolicy(timer_enabled=True, timer_interval=timedelta(minutes=1))
CAPPED = HeartbeatPolicy(max_daily_runs=2, max_daily_cost_cents=500)


def found(today: Today = NOTHING_TODAY, occupied: int = 0, **changes: Any) -> Finding:
    agent = replace(AGENT, **changes)
    return about_agent(Standing(agent, Target(agent), occupied, 3, today), NOW)


@pytest.mark.parametrize(
    ("finding", "state", "reason", "words"),
    [
        (found(), "ready", "", "Agent ann has 0 of 1 slots in use and 3 runs waiting"),
        (found(occupied=1), "busy", "", "1 of 1 slots in use"),
        (found(**PAUSED), "paused", "agent_paused", "it is paused: holidays"),
        (found(**PAUSED, runtime_id=None), "paused", "agent_paused", "until it is resumed"),
        (
            found(state=AgentState.ARCHIVED),
            "archived",
            "agent_archived",
            "takes no work any more",
        ),
        (
            found(manager_agent_id=UUID(int=77)),
            "not_invokable",
            "agent_not_invokable",
            "is not in this workspace",
        ),
        (found(runtime_id=None), "no_runtime", "agent_runtime_required", "it has no runtime"),
        (
            found(runtime_unusable_reason="no program"),
            "waiting_runtime",
            "runtime_unusable",
            "its runtime is of no use: no program",
        ),
        (found(runtime_present=False), "waiting_runtime", "runtime_offline", "runtime is away"),
        (found(Today(runs=2), heartbeat=CAPPED), "daily_limit", "daily_run_limit", "2 of 2 runs"),
        (
            found(Today(1, Decimal(500)), heartbeat=CAPPED),
            "daily_limit",
            "daily_cost_limit",
            "500 of 500 cents",
        ),
        (found(Today(1), heartbeat=CAPPED), "ready", "", "1 of 2 runs of this UTC day are used"),
        (
            found(heartbeat=HeartbeatPolicy(wake_on_demand=False)),
            "ready",
            "",
            "nothing but its timer wakes it",
        ),
    ],
)
def test_the_first_thing_in_its_way_is_told(
    finding: Finding, state: str, reason: str, words: str
) -> None:
    assert (finding.state, finding.reason) == (state, reason)
    assert words in finding.text
    assert finding.rows
    assert finding.command.startswith("reveille agent")


def test_what_lifts_the_days_limit_is_told() -> None:
    runs, money = (
        found(Today(runs=2), heartbeat=CAPPED),
        found(Today(1, Decimal(500)), heartbeat=CAPPED),
    )

    change = f"reveille agents update {AGENT.agent_id}"
    assert runs.command == f"{change} --max-daily-runs none"
    assert money.command == f"{change} --max-daily-cost none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "its timer is off."),
        ({"heartbeat": replace(EVERY_MINUTE, timer_enabled=False)}, "its timer is off."),
        (
            {"heartbeat": replace(EVERY_MINUTE, timer_interval=timedelta(0))},
            "its timer is on and has no interval, so that it never fires.",
        ),
        (
            {"heartbeat": EVERY_MINUTE},
            "its timer wakes it every 1 min, next at 2026-11-29 22:01:00 UTC.",
        ),
        (
            {"heartbeat": EVERY_MINUTE, "last_timer_fired_at": NOW - timedelta(seconds=20)},
            "next at 2026-11-29 22:00:40 UTC.",
        ),
        (
            {"heartbeat": EVERY_MINUTE, "last_timer_fired_at": NOW - timedelta(hours=1)},
            "is due since 2026-11-29 21:01:00 UTC: it fires with the scheduler's next tick.",
        ),
        ({"heartbeat": EVERY_MINUTE, **PAUSED}, "every 1 min while it is active."),
        (
            {"heartbeat": replace(EVERY_MINUTE, timer_interval=timedelta(seconds=90))},
            "every 90 s, next at",
        ),
    ],
)
def test_when_its_timer_wakes_it_is_told(changes: dict[str, Any], words: str) -> None:
    assert words in found(**changes).text
