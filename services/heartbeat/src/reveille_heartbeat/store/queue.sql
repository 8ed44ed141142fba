-- name: insert_runs
-- Attempts enter the queue, or wait for their time. How long each may then wait is its agent's
-- setting. $1 ids, $2 workspaces, $3 agents, $4 wakeups, $5 issues,
-- $6 attempts, $7 repeated runs, $8 retry reasons, $9 ranks, $10 priorities,
-- $11 responsible users, $12 run carriers, $13 agent carriers, $14 when each is due (null: now)
INSERT INTO runs (run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt,
    retry_of_run_id, retry_reason, ready_rank, priority, responsible_user_id, trace_carrier,
    agent_carrier, start_by, scheduled_retry_at)
SELECT r.run_id, r.workspace_id, r.agent_id, r.wakeup_id, r.issue_id,
    CASE WHEN r.due_at IS NULL THEN 'queued' ELSE 'scheduled_retry' END, r.attempt,
    r.retry_of_run_id, r.retry_reason, r.ready_rank, r.priority, r.responsible_user_id,
    r.trace_carrier, r.agent_carrier, greatest(r.due_at, clock()) + a.start_limit, r.due_at
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::integer[],
    $7::uuid[], $8::text[], $9::smallint[], $10::smallint[], $11::text[], $12::jsonb[],
    $13::jsonb[], $14::timestamptz[])
    AS r (run_id, workspace_id, agent_id, wakeup_id, issue_id, attempt, retry_of_run_id,
        retry_reason, ready_rank, priority, responsible_user_id, trace_carrier, agent_carrier, due_at)
JOIN agents a ON a.agent_id = r.agent_id;

-- name: issues_with_run
-- The issues that have a run, waiting or at work, read after the locks. $1 issues
SELECT DISTINCT issue_id FROM runs
WHERE issue_id = ANY($1::uuid[]) AND (state IN ('queued', 'scheduled_retry') OR occupied);

-- name: cancel_queued_run
-- A run that never started, or waits for its time, ends and needs no follow-up. $1 run, $2 reason, $3 message
UPDATE runs
SET state = 'cancelled', reason = $2, message = $3, finished_at = clock(),
    follow_up_done_at = clock(), event_seq = event_seq + 1
WHERE run_id = $1 AND state IN ('queued', 'scheduled_retry')
RETURNING run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress, event_seq;

-- name: overdue_queued
-- A page of the runs that nobody started within their limit. $1 run after which it starts, $2 limit
SELECT run_id FROM runs
WHERE state = 'queued' AND started_at IS NULL AND finished_at IS NULL
    AND start_by < (SELECT clock()) AND run_id > $1
ORDER BY run_id
LIMIT $2;
