"""Rows as the domain's values."""

from __future__ import annotations

from typing import Any

import asyncpg

from reveille_heartbeat.domain.runtimes import Runtime, RuntimeKind
from reveille_heartbeat.domain.states import AgentState, IssueState, RunState, WakeupState
from reveille_heartbeat.domain.targets import Manager, Squad
from reveille_heartbeat.domain.values import (
    Agent,
    CommentStatus,
    FailureClass,
    HeartbeatPolicy,
    InvocationRule,
    Issue,
    Payload,
    ProcessIdentity,
    Requester,
    RequesterKind,
    Run,
    Wakeup,
    WakeupSource,
    Workspace,
    WorkspaceStatus,
)

Record = asyncpg.Record


def to_workspace(row: Record) -> Workspace:
    """Map a row of `workspaces`."""
    return Workspace(
        row["workspace_id"],
        row["issue_prefix"],
        row["default_responsible_user_id"],
        WorkspaceStatus(row["status"]),
    )


def to_agent(row: Record) -> Agent:
    """Map a row of `agents` with its runtime's presence, and its load where that was asked for."""
    shown: dict[str, Any] = {
        name: row[name]
        for name in ("busy", "last_run_failed")
        if name in row.keys()  # noqa: SIM118 (a Record is no dict)
    }
    return Agent(
        agent_id=row["agent_id"],
        workspace_id=row["workspace_id"],
        name=row["name"],
        adapter=row["adapter"],
        adapter_config=row["adapter_config"],
        owner_user_id=row["owner_user_id"],
        invocation_rule=InvocationRule(row["invocation_rule"]),
        invocation_user_ids=tuple(row["invocation_user_ids"]),
        max_concurrent_runs=row["max_concurrent_runs"],
        run_timeout=row["run_timeout"],
        idle_timeout=row["idle_timeout"],
        created_at=row["created_at"],
        runtime_id=row["runtime_id"],
        runtime_present=row["runtime_present"],
        runtime_unusable_reason=row["runtime_unusable_reason"],
        state=AgentState(row["state"]),
        pause_reason=row["pause_reason"],
        manager_agent_id=row["manager_agent_id"],
        heartbeat=HeartbeatPolicy(
            timer_enabled=row["timer_enabled"],
            timer_interval=row["timer_interval"],
            skip_timer_without_work=row["skip_timer_without_work"],
            wake_on_demand=row["wake_on_demand"],
            max_daily_runs=row["max_daily_runs"],
            max_daily_cost_cents=row["max_daily_cost_cents"],
            cooldown=row["cooldown"],
            max_turn_continuations=row["max_turn_continuations"],
            max_turn_delay=row["max_turn_delay"],
        ),
        last_timer_fired_at=row["last_timer_fired_at"],
        start_limit=row["start_limit"],
        revision=row["revision"],
        updated_at=row["updated_at"],
        **shown,
    )


def to_squad(row: Record) -> Squad:
    """Map a row of `squads` with its members."""
    return Squad(
        squad_id=row["squad_id"],
        workspace_id=row["workspace_id"],
        name=row["name"],
        leader_agent_id=row["leader_agent_id"],
        member_agent_ids=tuple(row["member_agent_ids"]),
        state=AgentState(row["state"]),
        pause_reason=row["pause_reason"],
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def to_manager(row: Record) -> Manager:
    """Map what those below see of a row of `agents`."""
    return Manager(
        row["agent_id"],
        row["workspace_id"],
        row["name"],
        AgentState(row["state"]),
        row["manager_agent_id"],
    )


def to_runtime(row: Record) -> Runtime:
    """Map a row of `runtimes` with its presence."""
    return Runtime(
        runtime_id=row["runtime_id"],
        workspace_id=row["workspace_id"],
        name=row["name"],
        kind=RuntimeKind(row["kind"]),
        present=row["present"],
        unusable_reason=row["unusable_reason"],
        metadata=row["metadata"],
        presence_expires_at=row["presence_expires_at"],
        created_at=row["created_at"],
    )


def to_issue(row: Record) -> Issue:
    """Map a row of `issues`."""
    return Issue(
        issue_id=row["issue_id"],
        workspace_id=row["workspace_id"],
        identifier=row["identifier"],
        title=row["title"],
        description=row["description"],
        status=IssueState(row["status"]),
        priority=row["priority"],
        assignee_agent_id=row["assignee_agent_id"],
        responsible_user_id=row["responsible_user_id"],
        occurrence_key=row["occurrence_key"],
        execution_run_id=row["execution_run_id"],
        revision=row["revision"],
        trace_carrier=row["trace_carrier"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        project_id=row["project_id"],
        parent_issue_id=row["parent_issue_id"],
        assignee_user_id=row["assignee_user_id"],
        reviewer_agent_id=row["reviewer_agent_id"],
        reviewer_user_id=row["reviewer_user_id"],
        checkout_run_id=row["checkout_run_id"],
        origin_kind=row["origin_kind"],
        origin_id=row["origin_id"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        last_input_at=row["last_input_at"],
        deleted_at=row["deleted_at"],
    )


def to_wakeup(row: Record) -> Wakeup:
    """Map a row of `wakeup_requests`."""
    return Wakeup(
        wakeup_id=row["wakeup_id"],
        workspace_id=row["workspace_id"],
        agent_id=row["agent_id"],
        source=WakeupSource(row["source"]),
        wake_reason=row["wake_reason"],
        title=row["title"],
        state=WakeupState(row["state"]),
        reason=row["reason"],
        message=row["message"],
        issue_id=row["issue_id"],
        run_id=row["run_id"],
        occurrence_key=row["occurrence_key"],
        joined_wakeup_id=row["joined_wakeup_id"],
        originator_user_id=row["originator_user_id"],
        accountable_user_id=row["accountable_user_id"],
        responsible_user_id=row["responsible_user_id"],
        autopilot_run_id=row["autopilot_run_id"],
        attempts=row["attempts"],
        cancel_requested=row["cancel_requested"],
        trace_carrier=row["trace_carrier"],
        created_at=row["created_at"],
        claimed_at=row["claimed_at"],
        finished_at=row["finished_at"],
        squad_id=row["squad_id"],
        requester=Requester(RequesterKind(row["requester_kind"]), row["requester_id"]),
        task_key=row["task_key"],
        comment_ids=tuple(row["comment_ids"]),
        fresh_session=row["fresh_session"],
        coalesced_count=row["coalesced_count"],
        context=row["context"],
    )


def to_payload(row: Record) -> tuple[str, Payload]:
    """Map a row of `wakeup_payloads`: the prompt, and what came with it."""
    return row["prompt"], Payload(
        row["content_type"], row["body"], row["delivery_id"], row["facts"]
    )


def to_run(row: Record) -> Run:
    """Map a row of `runs`."""
    pid = row["process_pid"]
    return Run(
        run_id=row["run_id"],
        workspace_id=row["workspace_id"],
        agent_id=row["agent_id"],
        wakeup_id=row["wakeup_id"],
        issue_id=row["issue_id"],
        state=RunState(row["state"]),
        attempt=row["attempt"],
        retry_of_run_id=row["retry_of_run_id"],
        retry_reason=row["retry_reason"],
        reason=row["reason"],
        message=row["message"],
        exit_code=row["exit_code"],
        summary=row["summary"],
        result=row["result"],
        responsible_user_id=row["responsible_user_id"],
        occupied=row["occupied"],
        executor_id=row["executor_id"],
        place=row["place"],
        lease_token=row["lease_token"],
        lease_expires_at=row["lease_expires_at"],
        deadline_at=row["deadline_at"],
        idle_deadline_at=row["idle_deadline_at"],
        process=None if pid is None else ProcessIdentity(pid, row["process_start_ticks"]),
        trace_carrier=row["trace_carrier"],
        agent_carrier=row["agent_carrier"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        follow_up_done_at=row["follow_up_done_at"],
        start_by=row["start_by"],
        scheduled_retry_at=row["scheduled_retry_at"],
        failure_class=FailureClass(row["failure_class"]),
        retry_not_before=row["retry_not_before"],
        comment_status=CommentStatus(row["comment_status"]),
        left_progress=row["left_progress"],
        last_output_at=row["last_output_at"],
        progress=row["progress"],
    )
