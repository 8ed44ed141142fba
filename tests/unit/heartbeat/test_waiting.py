"""Why a run waits: the first obstacle by name, and the command that would remove it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.heartbeat.made import AGENT, ISSUE, NOW, RUN, WAKEUP, WORKSPACE

from reveille_heartbeat.domain.gates import Waiting
from reveille_heartbeat.domain.limits import RunLimits, Today
from reveille_heartbeat.domain.obstacles import Blocker, HoldMode, HoldOver
from reveille_heartbeat.domain.states import AgentState, IssueState, RunState
from reveille_heartbeat.domain.targets import Target
from reveille_heartbeat.domain.values import HeartbeatPolicy, WorkspaceStatus
from reveille_heartbeat.domain.waiting import OBSTACLES, Around, why_it_waits
from reveille_heartbeat.domain.wakes import COMMENT_REASON

QUEUED = replace(
    RUN, state=RunState.QUEUED, occupied=False, started_at=None, issue_id=ISSUE.issue_id
)
GATE = Waiting(QUEUED.run_id, None, "", AGENT.agent_id, Target(AGENT), WAKEUP, ISSUE)
FREE = Around(
    now=NOW,
    run=QUEUED,
    waiting=GATE,
    agent=AGENT,
    workspace=WORKSPACE,
    suppressed=False,
    limits=RunLimits(),
)
HOLD = HoldOver(UUID(int=30), HoldMode.PAUSE, "an audit", UUID(int=31), "ABC-7")
BLOCKERS = (
    Blocker(UUID(int=40), "ABC-2", "First", IssueState.TODO),
    Blocker(UUID(int=41), "ABC-3", "Second", IssueState.CANCELLED),
)
OTHER = UUID(int=50)
ANSWERS = replace(WAKEUP, context={COMMENT_REASON: "issue_commented"})
A = AGENT.agent_id
CASES: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {
            "run": replace(
                QUEUED,
                state=RunState.SCHEDULED_RETRY,
                scheduled_retry_at=NOW + timedelta(minutes=10),
            )
        },
        "waiting_retry",
        "tried again at 2026-11-29 22:10 UTC",
        f"reveille agent-runs retry {RUN.run_id}",
    ),
    ({"suppressed": True}, "suppressed", "REVEILLE_SCHEDULING_SUPPRESSED", ""),
    (
        {"workspace": replace(WORKSPACE, status=WorkspaceStatus.PAUSED)},
        "waiting_workspace",
        "its workspace is paused",
        "",
    ),
    ({"workspace": None}, "waiting_workspace", "its workspace is unknown", ""),
    (
        {"agent": replace(AGENT, state=AgentState.PAUSED)},
        "waiting_agent",
        "agent ann is paused",
        f"reveille agents resume {A}",
    ),
    ({"agent": replace(AGENT, state=AgentState.ARCHIVED)}, "waiting_agent", "is archived", ""),
    (
        {"agent": replace(AGENT, runtime_id=None)},
        "waiting_runtime",
        "has no runtime",
        f"reveille runtimes list --workspace {AGENT.workspace_id}",
    ),
    (
        {"agent": replace(AGENT, runtime_present=False)},
        "waiting_runtime",
        "which is away",
        f"reveille runtimes list --workspace {AGENT.workspace_id}",
    ),
    (
        {"agent": replace(AGENT, runtime_unusable_reason="no disk")},
        "waiting_runtime",
        "cannot run it: no disk",
        f"reveille runtimes list --workspace {AGENT.workspace_id}",
    ),
    (
        {"waiting": replace(GATE, hold=HOLD)},
        "held",
        "ABC-7 and all below it is held (an audit)",
        "reveille issues unhold ABC-7",
    ),
    (
        {"waiting": replace(GATE, blockers=BLOCKERS)},
        "blocked",
        "waits for ABC-2 (todo), ABC-3 (cancelled)",
        "reveille issues move ABC-2 done",
    ),
    (
        {"waiting": replace(GATE, blockers=BLOCKERS[1:])},
        "blocked",
        "waits for ABC-3 (cancelled)",
        # What is cancelled cannot be done; the tie can be cut.
        f"reveille issues unblock {ISSUE.issue_id} ABC-3",
    ),
    (
        {"waiting": replace(GATE, blockers=(replace(BLOCKERS[0], status=IssueState.BACKLOG),))},
        "blocked",
        "waits for ABC-2 (backlog)",
        "reveille issues move ABC-2 todo",
    ),
    (
        {"holder": OTHER},
        "waiting_lock",
        f"waits for attempt {OTHER}, which holds its issue",
        f"reveille agent-runs watch {OTHER}",
    ),
    (
        {"busy": 1, "before": 3},
        "waiting_slot",
        "agent ann has 1 of 1 in use; 3 of its agent's runs come first",
        f"reveille agents update {A} --max-concurrent-runs 2",
    ),
    (
        {"limits": RunLimits(workspace=5), "busy_here": 5},
        "waiting_limit",
        "REVEILLE_WORKSPACE_RUN_LIMIT is 5",
        "",
    ),
    (
        {"limits": RunLimits(everywhere=9), "busy_everywhere": 9},
        "waiting_limit",
        "REVEILLE_GLOBAL_RUN_LIMIT is 9",
        "",
    ),
    (
        {
            "agent": replace(AGENT, heartbeat=HeartbeatPolicy(max_daily_runs=2)),
            "today": Today(runs=2),
        },
        "daily_run_limit",
        "2 runs were started today (UTC), 2 may be",
        f"reveille agents update {A} --max-daily-runs none",
    ),
    ({"before": 1}, "queued", "waits for its turn, until 2026-11-30 22:00 UTC", ""),
    ({"holder": QUEUED.run_id}, "queued", "waits for its turn", ""),
    (
        {"waiting": replace(GATE, blockers=BLOCKERS, wakeup=ANSWERS)},
        "queued",
        "waits for its turn",
        "",
    ),
    (
        {"waiting": replace(GATE, issue=replace(ISSUE, status=IssueState.DONE))},
        "issue_closed",
        "will not begin: its issue had ended",
        "",
    ),
]


@pytest.mark.parametrize(("changes", "state", "words", "command"), CASES)
def test_the_reason_is_named_with_what_would_change_it(
    changes: dict[str, Any], state: str, words: str, command: str
) -> None:
    wait = why_it_waits(replace(FREE, **changes))

    assert (wait.state, wait.command) == (state, command)
    assert words in wait.words


def test_what_keeps_everything_back_is_told_first() -> None:
    """Each case of its own obstacle alone; all together, the first of the list counts."""
    everything: dict[str, Any] = {}
    for changes, state, _, _ in reversed(CASES):
        if state != "queued":
            everything |= changes
    assert why_it_waits(replace(FREE, **everything)).state == "waiting_retry"
    # The gates are one obstacle with a state for each of their reasons.
    states = {state for _, state, _, _ in CASES} - {"queued", "blocked", "issue_closed"}
    assert len(OBSTACLES) == len(states)


def test_blockers_and_holds_lead_on() -> None:
    assert why_it_waits(replace(FREE, waiting=replace(GATE, hold=HOLD))).related == (
        str(HOLD.root_issue_id),
    )
    blocked = replace(FREE, waiting=replace(GATE, blockers=BLOCKERS))
    assert why_it_waits(blocked).related == (
        str(UUID(int=40)),
        str(UUID(int=41)),
    )
