-- name: insert_runs
-- Attempts enter the queue. $1 ids, $2 workspaces, $3 agents, $4 wakeups, $5 issues,
-- $6 attempts, $7 repeated runs, $8 retry reasons, $9 ranks, $10 priorities,
-- $11 responsible users, $12 run carriers, $13 agent carriers
INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt,
    retry_of_run_id, retry_reason, ready_rank, priority, responsible_user_id, trace_carrier,
    agent_carrier, start_by)
SELECT r.run_id, r.workspace_id, r.agent_id, r.wakeup_id, r.issue_id, 'queued', r.attempt,
    r.retry_of_run_id, r.retry_reason, r.ready_rank, r.priority, r.responsible_user_id,
    r.trace_carrier, r.agent_carrier, clock() + a.start_limit
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::integer[],
    $7::uuid[], $8::text[], $9::smallint[], $10::smallint[], $11::text[], $12::jsonb[],
    $13::jsonb[])
    AS r (run_id, workspace_id, agent_id, wakeup_id, issue_id, attempt, retry_of_run_id,
        retry_reason, ready_rank, priority, responsible_user_id, trace_carrier, agent_carrier)
JOIN agents a ON a.agent_id = r.agent_id;

-- name: waiting_workspaces
-- Workspaces with queued runs, found by hopping over the claim index. $1 limit
WITH RECURSIVE waiting (workspace_id) AS (
    (SELECT workspace_id FROM runs WHERE state = 'queued' ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT r.workspace_id FROM runs r
        WHERE r.state = 'queued' AND r.workspace_id > w.workspace_id
        ORDER BY r.workspace_id LIMIT 1
    )
    FROM waiting w
    WHERE w.workspace_id IS NOT NULL
)
SELECT workspace_id FROM waiting WHERE workspace_id IS NOT NULL LIMIT $1;

-- name: claim_candidates
-- The best queued runs of every agent that has a free slot and a runtime, each agent reached by one
-- hop of the claim index, so that neither a full agent nor a busy issue hides the others.
-- $1 workspace, $2 limit
WITH RECURSIVE waiting (agent_id) AS (
    (
        SELECT agent_id FROM runs
        WHERE workspace_id = $1 AND state = 'queued' ORDER BY agent_id LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT r.agent_id FROM runs r
        WHERE r.workspace_id = $1 AND r.state = 'queued' AND r.agent_id > w.agent_id
        ORDER BY r.agent_id LIMIT 1
    )
    FROM waiting w
    WHERE w.agent_id IS NOT NULL
),
free AS MATERIALIZED (
    SELECT w.agent_id, a.max_concurrent_runs - (
        SELECT count(*) FROM runs o WHERE o.agent_id = w.agent_id AND o.occupied
    ) AS slots
    FROM waiting w
    JOIN agents a ON a.agent_id = w.agent_id
    JOIN runtimes t ON t.runtime_id = a.runtime_id
    WHERE t.presence_expires_at > (SELECT clock())
)
SELECT c.run_id, c.wakeup_id, c.agent_id, c.issue_id, c.ready_rank, c.priority, c.created_at
FROM free f
CROSS JOIN LATERAL (
    SELECT r.run_id, r.wakeup_id, r.agent_id, r.issue_id, r.ready_rank, r.priority, r.created_at
    FROM runs r
    WHERE r.workspace_id = $1 AND r.agent_id = f.agent_id AND r.state = 'queued'
        AND NOT EXISTS (SELECT FROM runs b WHERE b.issue_id = r.issue_id AND b.occupied)
    ORDER BY r.ready_rank, r.priority, r.created_at, r.run_id
    LIMIT f.slots
) c
WHERE f.slots > 0
ORDER BY c.ready_rank, c.priority, c.created_at, c.run_id
LIMIT $2;

-- name: occupied_per_agent
-- The slots in use, read after the locks. $1 agents
SELECT agent_id, count(*) AS occupied FROM runs
WHERE agent_id = ANY($1::uuid[]) AND occupied
GROUP BY agent_id;

-- name: occupied_issues
-- The issues that a run holds, read after the locks. $1 issues
SELECT issue_id FROM runs WHERE issue_id = ANY($1::uuid[]) AND occupied;

-- name: issues_with_run
-- The issues that have a run, waiting or at work, read after the locks. $1 issues
SELECT DISTINCT issue_id FROM runs
WHERE issue_id = ANY($1::uuid[]) AND (state IN ('queued', 'scheduled_retry') OR occupied);

-- name: claim_runs
-- The claim itself, a compare-and-set on the state. A run that somebody else is just changing is
-- left for the next batch. The deadlines start here. $1 runs, $2 tokens, $3 executor, $4 place,
-- $5 lease (interval)
WITH wanted AS MATERIALIZED (
    SELECT run_id, token FROM unnest($1::uuid[], $2::uuid[]) AS c (run_id, token)
)
UPDATE runs r
SET state = 'running', occupied = true, executor_id = $3, place = $4, lease_token = w.token,
    lease_expires_at = clock() + $5::interval, started_at = clock(),
    deadline_at = CASE WHEN a.run_timeout > '0' THEN clock() + a.run_timeout END,
    idle_deadline_at = CASE WHEN a.idle_timeout > '0' THEN clock() + a.idle_timeout END,
    event_seq = r.event_seq + 1
FROM wanted w, agents a
WHERE w.run_id = r.run_id AND a.agent_id = r.agent_id AND r.ctid = ANY (ARRAY(
    SELECT q.ctid FROM runs q
    WHERE q.run_id = ANY($1::uuid[]) AND q.state = 'queued'
    ORDER BY q.run_id
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING r.run_id, r.workspace_id, r.agent_id, r.wakeup_id, r.issue_id, r.state, r.attempt, r.retry_of_run_id, r.retry_reason,
    r.reason, r.message, r.exit_code, r.summary, r.result, r.responsible_user_id, r.occupied, r.executor_id, r.place,
    r.lease_token, r.lease_expires_at, r.deadline_at, r.idle_deadline_at, r.process_pid, r.process_start_ticks,
    r.trace_carrier, r.agent_carrier, r.created_at, r.started_at, r.finished_at, r.follow_up_done_at, r.start_by, r.scheduled_retry_at,
    r.failure_class, r.retry_not_before, r.comment_status, r.left_progress, r.prompt_built_at,
    r.last_output_at, r.progress, r.event_seq;

-- name: cancel_queued_run
-- A run that never started ends, and needs no follow-up. $1 run, $2 reason, $3 message
UPDATE runs
SET state = 'cancelled', reason = $2, message = $3, finished_at = clock(),
    follow_up_done_at = clock(), event_seq = event_seq + 1
WHERE run_id = $1 AND state IN ('queued', 'scheduled_retry')
RETURNING run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, prompt_built_at, last_output_at,
    progress, event_seq;

-- name: overdue_queued
-- A page of the runs that nobody started within their limit. $1 run after which it starts, $2 limit
SELECT run_id FROM runs
WHERE state = 'queued' AND start_by < (SELECT clock()) AND run_id > $1
ORDER BY run_id
LIMIT $2;
