"""Why a run waits, for whoever asks: the first thing that keeps it, and what would change that.

The order is that in which a claim would find out; what keeps everything back comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from reveille_heartbeat.domain.gates import Waiting, refusal_of
from reveille_heartbeat.domain.limits import RunLimits, Today, over_daily_cap
from reveille_heartbeat.domain.obstacles import Blocker
from reveille_heartbeat.domain.reasons import Reason
from reveille_heartbeat.domain.states import AgentState, IssueState, RunState
from reveille_heartbeat.domain.values import (
    Agent,
    Run,
    Workspace,
    WorkspaceStatus,
)


@dataclass(frozen=True, slots=True)
class Around:
    """What a run that waits depends on, as it stands now."""

    now: datetime
    run: Run
    # What the gates look at.
    waiting: Waiting
    agent: Agent
    workspace: Workspace | None
    suppressed: bool
    limits: RunLimits
    # Runs at work: of the agent, in the workspace, in all.
    busy: int = 0
    busy_here: int = 0
    busy_everywhere: int = 0
    # The run that holds the issue.
    holder: UUID | None = None
    # How many of the agent's runs have their turn before it.
    before: int = 0
    today: Today | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """What keeps it, in words that go on from "the attempt"; empty commands change nothing."""

    state: str
    words: str
    command: str = ""
    related: tuple[str, ...] = ()


Obstacle = Callable[[Around], Wait | None]


def not_before(around: Around) -> Wait | None:
    """A repeat waits for its time."""
    due = around.run.scheduled_retry_at
    if around.run.state is not RunState.SCHEDULED_RETRY or due is None:
        return None
    return Wait(
        "waiting_retry",
        f"waits to be tried again at {_time(due)}",
        f"reveille agent-runs retry {around.run.run_id}",
    )


def suppressed(around: Around) -> Wait | None:
    """An operator holds everything back."""
    if not around.suppressed:
        return None
    return Wait("suppressed", "waits because REVEILLE_SCHEDULING_SUPPRESSED holds everything back")


def workspace_rests(around: Around) -> Wait | None:
    """Nothing goes on in the workspace."""
    workspace = around.workspace
    if workspace is not None and workspace.status is WorkspaceStatus.ACTIVE:
        return None
    what = "unknown" if workspace is None else workspace.status.value
    return Wait("waiting_workspace", f"waits because its workspace is {what}")


def agent_rests(around: Around) -> Wait | None:
    """Its agent takes no work."""
    agent = around.agent
    if agent.state is AgentState.ACTIVE:
        return None
    command = ""
    if agent.state is AgentState.PAUSED:
        command = f"reveille agents resume {agent.agent_id}"
    return Wait(
        "waiting_agent", f"waits because agent {agent.name} is {agent.state.value}", command
    )


def no_runtime(around: Around) -> Wait | None:
    """There is no place where its agent could run now."""
    agent = around.agent
    where = f"reveille runtimes list --workspace {agent.workspace_id}"
    if agent.runtime_id is None:
        return Wait("waiting_runtime", f"waits because agent {agent.name} has no runtime", where)
    if not agent.runtime_present:
        return Wait("waiting_runtime", "waits for its agent's runtime, which is away", where)
    if agent.runtime_unusable_reason:
        return Wait(
            "waiting_runtime",
            f"waits for its agent's runtime, which cannot run it: {agent.runtime_unusable_reason}",
            where,
        )
    return None


def refused(around: Around) -> Wait | None:
    """A gate is in its way that would end it now, if its turn came."""
    refusal = refusal_of(around.waiting)
    if refusal is None:
        return None
    hold, blockers, issue = around.waiting.hold, around.waiting.blockers, around.waiting.issue
    words = f"will not begin: {refusal.message}"
    if refusal.reason is Reason.ISSUE_TREE_HELD and hold is not None:
        return Wait(
            "held",
            f"{words} ({hold.reason})" if hold.reason else words,
            f"reveille issues unhold {hold.root_identifier}",
            (str(hold.root_issue_id),),
        )
    if refusal.reason is Reason.ISSUE_DEPENDENCIES_BLOCKED and blockers and issue is not None:
        return Wait(
            "blocked",
            f"will not begin: its issue waits for {names_of(blockers)}",
            to_unblock(issue.issue_id, blockers[0]),
            tuple(str(each.issue_id) for each in blockers),
        )
    return Wait(refusal.reason.value, words)


def issue_busy(around: Around) -> Wait | None:
    """Another run holds its issue."""
    if around.holder is None or around.holder == around.run.run_id:
        return None
    return Wait(
        "waiting_lock",
        f"waits for attempt {around.holder}, which holds its issue",
        f"reveille agent-runs watch {around.holder}",
        (str(around.holder),),
    )


def no_slot(around: Around) -> Wait | None:
    """Its agent has as many runs as it may."""
    agent = around.agent
    if around.busy < agent.max_concurrent_runs:
        return None
    return Wait(
        "waiting_slot",
        f"waits for a slot: agent {agent.name} has {around.busy} of"
        f" {agent.max_concurrent_runs} in use{_before(around)}",
        f"reveille agents update {agent.agent_id} --max-concurrent-runs"
        f" {min(50, agent.max_concurrent_runs + 1)}",
    )


def limit_reached(around: Around) -> Wait | None:
    """As many runs are at work as may be."""
    here, everywhere = around.limits.workspace, around.limits.everywhere
    if here is not None and around.busy_here >= here:
        return Wait(
            "waiting_limit",
            f"waits because {around.busy_here} runs are at work in its workspace,"
            f" and REVEILLE_WORKSPACE_RUN_LIMIT is {here}",
        )
    if everywhere is not None and around.busy_everywhere >= everywhere:
        return Wait(
            "waiting_limit",
            f"waits because {around.busy_everywhere} runs are at work,"
            f" and REVEILLE_GLOBAL_RUN_LIMIT is {everywhere}",
        )
    return None


def day_used_up(around: Around) -> Wait | None:
    """Its agent has had its day: when its turn comes, that ends it."""
    if around.today is None:
        return None
    over = over_daily_cap(around.agent.heartbeat, around.today)
    if over is None:
        return None
    return Wait(
        over.reason.value,
        f"will not begin today: {over.message}",
        more_for_today(around.agent, over.reason.value),
    )


OBSTACLES: tuple[Obstacle, ...] = (
    not_before,
    suppressed,
    workspace_rests,
    agent_rests,
    no_runtime,
    refused,
    issue_busy,
    no_slot,
    limit_reached,
    day_used_up,
)


def why_it_waits(around: Around) -> Wait:
    """Name the first obstacle; without one it is only a matter of its turn."""
    for obstacle in OBSTACLES:
        wait = obstacle(around)
        if wait is not None:
            return wait
    return Wait(
        "queued",
        f"waits for its turn, until {_time(around.run.start_by)} at the latest{_before(around)}",
    )


def more_for_today(agent: Agent, reason: str) -> str:
    """Give the command that lifts a daily cap."""
    flag = "--max-daily-cost" if reason == "daily_cost_limit" else "--max-daily-runs"
    return f"reveille agents update {agent.agent_id} {flag} none"


def names_of(blockers: tuple[Blocker, ...]) -> str:
    """Name the issues that others wait for."""
    named = ", ".join(f"{each.identifier} ({each.status.value})" for each in blockers[:10])
    return named if len(blockers) <= 10 else f"{named} and {len(blockers) - 10} more"


def to_unblock(issue_id: UUID, blocker: Blocker) -> str:
    """Give the command that makes an issue wait for another no more, as far as its states go."""
    if blocker.status is IssueState.CANCELLED:
        return f"reveille issues unblock {issue_id} {blocker.identifier}"
    target = IssueState.TODO if blocker.status is IssueState.BACKLOG else IssueState.DONE
    return f"reveille issues move {blocker.identifier} {target.value}"


def _before(around: Around) -> str:
    if not around.before:
        return ""
    return f"; {around.before} of its agent's runs come first"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
