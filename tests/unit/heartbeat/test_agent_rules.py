"""What an agent does, and what an edit makes of its settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.heartbeat.made import AGENT

from reveille_heartbeat.domain.agents import AgentEdit, AgentSettings, AgentStatus
from reveille_heartbeat.domain.states import AgentState
from reveille_heartbeat.domain.values import HeartbeatPolicy, InvocationRule


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, AgentStatus.IDLE),
        ({"last_run_failed": True}, AgentStatus.ERROR),
        ({"busy": True}, AgentStatus.RUNNING),
        ({"busy": True, "last_run_failed": True}, AgentStatus.RUNNING),
        ({"state": AgentState.PAUSED}, AgentStatus.PAUSED),
        ({"state": AgentState.PAUSED, "busy": True}, AgentStatus.PAUSED),
        ({"state": AgentState.ARCHIVED, "last_run_failed": True}, AgentStatus.ARCHIVED),
    ],
)
def test_the_status_is_the_state_and_then_what_its_runs_say(
    changes: dict[str, Any], status: AgentStatus
) -> None:
    assert AgentStatus.of(replace(AGENT, **changes)) is status


def test_an_edit_changes_its_fields_and_no_other() -> None:
    before = AgentSettings.of(replace(AGENT, heartbeat=HeartbeatPolicy(max_daily_runs=3)))
    edit = AgentEdit({"name": "bob"}, {"timer_interval": timedelta(minutes=1)})
    after = edit.apply(before)
    assert after == replace(
        before,
        name="bob",
        heartbeat=replace(before.heartbeat, timer_interval=timedelta(minutes=1)),
    )
    assert AgentEdit().apply(before) == before


def test_a_rule_that_lists_nobody_keeps_no_list() -> None:
    members = AgentSettings.of(
        replace(AGENT, invocation_rule=InvocationRule.MEMBERS, invocation_user_ids=("max",))
    )
    private = AgentEdit({"invocation_rule": InvocationRule.PRIVATE}).apply(members)
    assert private.invocation_user_ids == ()
    assert AgentEdit({"name": "bob"}).apply(members).invocation_user_ids == ("max",)


@pytest.mark.parametrize(
    ("env", "kept"),
    [
        ({"API_TOKEN": "********"}, {"API_TOKEN": "hush"}),
        ({"API_TOKEN": "new"}, {"API_TOKEN": "new"}),
        ({"COLOUR": "********"}, {"COLOUR": "********"}),
        ({"OTHER_TOKEN": "********"}, {"OTHER_TOKEN": "********"}),
    ],
)
def test_stars_stand_for_the_secret_that_they_showed(
    env: dict[str, str], kept: dict[str, str]
) -> None:
    before = replace(
        AgentSettings.of(AGENT), adapter_config={"env": {"API_TOKEN": "hush", "COLOUR": "blue"}}
    )
    after = AgentEdit({"adapter_config": {"env": env}}).apply(before)
    assert after.adapter_config == {"env": kept}


@pytest.mark.parametrize(
    ("values", "opens"),
    [
        ({"name": "x"}, False),
        ({"owner_user_id": "x"}, True),
        ({"invocation_rule": InvocationRule.WORKSPACE}, True),
        ({"invocation_user_ids": ()}, True),
    ],
)
def test_giving_an_agent_away_is_to_open_it(values: dict[str, Any], opens: bool) -> None:
    assert AgentEdit(values).opens is opens
