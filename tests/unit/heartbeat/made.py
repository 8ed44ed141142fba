"""Values for tests of heartbeat's rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from reveille_heartbeat.domain.discussion import Comment
from reveille_heartbeat.domain.enqueue import Facts
from reveille_heartbeat.domain.states import AgentState, IssueState, RunState, WakeupState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import (
    Agent,
    CommentStatus,
    FailureClass,
    HeartbeatPolicy,
    InvocationRule,
    Issue,
    Origin,
    Payload,
    Requester,
    RequesterKind,
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
    runtime_unusable_reason="",
    state=AgentState.ACTIVE,
    pause_reason="",
    manager_agent_id=None,
    heartbeat=HeartbeatPolicy(),
    last_timer_fired_at=None,
    start_limit=timedelta(days=1),
    revision=1,
    updated_at=NOW,
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
    project_id=None,
    parent_issue_id=None,
    assignee_user_id="",
    reviewer_agent_id=None,
    reviewer_user_id="",
    checkout_run_id=None,
    origin_kind="manual",
    origin_id="",
    started_at=None,
    ended_at=None,
    last_input_at=NOW,
    deleted_at=None,
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
    requester=Requester(RequesterKind.SERVICE, "autopilot"),
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
    squad_id=None,
    requester=Requester(RequesterKind.SERVICE, "autopilot"),
    task_key="",
    comment_ids=(),
    fresh_session=False,
    coalesced_count=0,
    context={},
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
    scheduled_retry_at=None,
    failure_class=FailureClass.NONE,
    retry_not_before=None,
    comment_status=CommentStatus.NOT_APPLICABLE,
    left_progress=False,
    last_output_at=None,
    progress=None,
)
TARGET = Target(AGENT)
FACTS = Facts(now=NOW, suppressed=False, workspace=WORKSPACE, target=TARGET)


COMMENT = Comment(
    comment_id=UUID(int=7),
    issue_id=ISSUE.issue_id,
    workspace_id=SPACE,
    author=Requester(RequesterKind.USER, "max"),
    run_id=None,
    body="What about this?",
    created_at=NOW,
)


def wish(**changes: Any) -> Wish:
    """Change the wish."""
    return replace(WISH, **changes)
