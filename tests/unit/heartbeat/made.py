"""Values for tests of heartbeat's rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from reveille_heartbeat.domain.states import IssueState, RunState, WakeupState
from reveille_heartbeat.domain.values import (
    Agent,
    InvocationRule,
    Issue,
    Origin,
    Payload,
    Run,
    Wakeup,
    WakeupSource,
    Wish,
    Workspace,
)

NOW = datetime(2026, 11, 29, 22, tzinfo=UTC)
SPACE = UUID(int=1)
WORKSPACE = Workspace(SPACE, "ABC", "default")
AGENT = Agent(
    agent_id=UUID(int=2),
    workspace_id=SPACE,
    name="ann",
    adapter="echo",
    adapter_config={},
    owner_user_id="owner",
    invocation_rule=InvocationRule.WORKSPACE,
    invocation_user_ids=(),
    max_concurrent_runs=1,
    run_timeout=timedelta(hours=1),
    idle_timeout=timedelta(minutes=15),
    created_at=NOW,
    runtime_id=UUID(int=3),
    runtime_present=True,
)
ISSUE = Issue(
    issue_id=UUID(int=4),
    workspace_id=SPACE,
    identifier="ABC-1",
    title="Fix it",
    description="It is broken.",
    status=IssueState.TODO,
    priority=2,
    assignee_agent_id=AGENT.agent_id,
    responsible_user_id="issue owner",
    occurrence_key=None,
    execution_run_id=None,
    revision=1,
    trace_carrier={},
    created_at=NOW,
    updated_at=NOW,
)
WISH = Wish(
    wakeup_id=UUID(int=5),
    workspace_id=SPACE,
    agent_id=AGENT.agent_id,
    source=WakeupSource.AUTOMATION,
    wake_reason="autopilot_run",
    title="Look",
    prompt="Please look.",
    issue_id=None,
    caller="service:autopilot",
    idempotency_key=None,
    origin=Origin(accountable_user_id="accountable"),
    payload=Payload(),
)
WAKEUP = Wakeup(
    wakeup_id=UUID(int=5),
    workspace_id=SPACE,
    agent_id=AGENT.agent_id,
    source=WakeupSource.AUTOMATION,
    wake_reason="autopilot_run",
    title="Look",
    state=WakeupState.CLAIMED,
    reason="",
    message="",
    issue_id=None,
    run_id=UUID(int=6),
    occurrence_key="webhook:1",
    joined_wakeup_id=None,
    originator_user_id="",
    accountable_user_id="accountable",
    responsible_user_id="accountable",
    autopilot_run_id="",
    attempts=1,
    cancel_requested=False,
    trace_carrier={},
    created_at=NOW,
    claimed_at=NOW,
    finished_at=None,
)
RUN = Run(
    run_id=UUID(int=6),
    workspace_id=SPACE,
    agent_id=AGENT.agent_id,
    wakeup_id=WAKEUP.wakeup_id,
    issue_id=None,
    state=RunState.RUNNING,
    attempt=1,
    retry_of_run_id=None,
    retry_reason="",
    reason="",
    message="",
    exit_code=None,
    summary="",
    result=None,
    responsible_user_id="accountable",
    occupied=True,
    executor_id="host/1/2/mark",
    place="boot/ns/spool",
    lease_token=uuid4(),
    lease_expires_at=NOW + timedelta(seconds=30),
    deadline_at=None,
    idle_deadline_at=None,
    process=None,
    trace_carrier={},
    agent_carrier={"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"},
    created_at=NOW,
    started_at=NOW,
    finished_at=None,
    follow_up_done_at=None,
    start_by=NOW + timedelta(days=1),
)


def wish(**changes: Any) -> Wish:
    """Change the wish."""
    return replace(WISH, **changes)
