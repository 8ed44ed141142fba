"""What enqueueing reads is bounded by its batch, however much history there is."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.integration.heartbeat.desk import Desk

from reveille_heartbeat.store.queries import Q

_ROWS = 20_000
_LARGE = ("issues", "issue_relations", "wakeup_requests", "runs", "occurrences")


async def fill(desk: Desk) -> None:
    """Make a past of twenty agents: one issue per run, and now and then a wake that waits."""
    for number in range(20):
        await desk.agent(f"agent {number}")
    await desk.rows.execute(
        "INSERT INTO issues (issue_id, workspace_id, number, identifier, title, status)"
        " SELECT gen_random_uuid(), $1, n, 'ABC-' || n, 'x', 'done'"
        " FROM generate_series(1, $2::int) n",
        desk.workspace_id,
        _ROWS,
    )
    await desk.rows.execute(
        "INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason,"
        " title, issue_id, state, reason, caller, idempotency_key, run_id, finished_at)"
        " SELECT gen_random_uuid(), $1, a.agent_id, 'automation', 'x', 'x', i.issue_id,"
        " CASE i.number % 500 WHEN 0 THEN 'deferred' ELSE 'completed' END, 'issue_busy', 'robot',"
        " i.number::text, gen_random_uuid(), CASE i.number % 500 WHEN 0 THEN NULL ELSE clock() END"
        " FROM issues i JOIN (SELECT agent_id, row_number() OVER () AS n FROM agents) a"
        " ON a.n = 1 + i.number % 20",
        desk.workspace_id,
    )
    await desk.rows.execute(
        "INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt,"
        " ready_rank, priority, start_by, started_at, finished_at, follow_up_done_at)"
        " SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, 'succeeded', 1, 1, 4,"
        " clock(), clock() - interval '3 d', clock(), clock()"
        " FROM wakeup_requests WHERE state = 'completed'"
    )
    await desk.rows.execute(
        "INSERT INTO issue_relations (issue_id, blocker_issue_id)"
        " SELECT a.issue_id, b.issue_id FROM issues a JOIN issues b ON b.number = a.number + 1"
    )
    await desk.rows.execute(
        "UPDATE issues i SET parent_issue_id = p.issue_id FROM issues p"
        " WHERE i.number % 100 <> 0 AND p.number = i.number - i.number % 100"
    )
    await desk.rows.execute(
        "INSERT INTO issue_tree_holds (hold_id, workspace_id, root_issue_id, mode, created_by)"
        " SELECT gen_random_uuid(), workspace_id, issue_id, 'pause', 'x' FROM issues"
        " WHERE number % 1000 = 0"
    )
    await desk.rows.execute(
        "INSERT INTO occurrences (workspace_id, occurrence_key, wakeup_id)"
        " SELECT workspace_id, idempotency_key, wakeup_id FROM wakeup_requests"
    )


async def test_no_history_is_read_for_a_wish(desk: Desk) -> None:
    # Statistics are those of an empty database, as on the first busy day.
    await fill(desk)
    agents = [row[0] for row in await desk.rows.fetch("SELECT agent_id FROM agents")]
    issues = [row[0] for row in await desk.rows.fetch("SELECT issue_id FROM issues LIMIT 20")]
    spaces, names = [desk.workspace_id] * 20, [str(number) for number in range(1, 21)]
    asked: dict[str, list[Any]] = {
        "find_by_idempotency_key": [spaces, ["robot"] * 20, names],
        "find_occurrences": [spaces, names],
        "issues_by_identifier": [[f"ABC-{name}" for name in names], spaces],
        "issue_facts": [issues],
        "open_blockers": [issues],
        "holds_over_issues": [issues, 100],
        "find_managers": [agents],
        "agents_with_work": [agents],
        "past_runs_of_issues": [agents, issues, 8],
        "last_free_runs": [agents],
        "use_of_today": [agents],
        "open_wakes_on_issues": [agents, issues],
        "open_wakes_on_tasks": [agents, [""] * 20],
        "issues_with_run": [issues],
        "oldest_deferred": [issues],
        "stranded_issues": [uuid4(), 100],
        # What issues that move, rest or are named have to look at.
        "issue_details": [issues],
        "issues_of_identifier": ["ABC-7", None],
        "issues_above": [issues[0], 100],
        "issues_below": [issues[0], 100, 1000],
        "related_issues": [issues],
        "dependents": [issues],
        "resolved_blockers": [issues],
        "is_blocked_by": [issues[0], issues[1]],
        "completed_parents": [issues],
        "queue_places": [issues],
        "live_runs": [issues],
        "waiting_wakeups_of_issue": [issues[0]],
        "unsettled_with_work": [issues],
        "wakes_swallowed": [issues, None],
    }
    admin = await desk.database.admin()
    await admin.execute("SET search_path = heartbeat")
    # Half of the statistics is what autovacuum has at some moment of such a day.
    for analyzed in ("", *_LARGE):
        if analyzed:
            await admin.execute(f"ANALYZE {analyzed}")
        for name, arguments in asked.items():
            plan = await desk.rows.fetch(f"EXPLAIN {Q[name].sql}", *arguments)
            text = "\n".join(row["QUERY PLAN"] for row in plan)
            for table in _LARGE:
                assert f"Seq Scan on {table}" not in text, f"{name}\n{text}"
