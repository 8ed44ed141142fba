-- name: find_runs
-- Runs by id. $1 ids
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress
FROM runs
WHERE run_id = ANY($1::uuid[]);

-- name: lock_runs
-- The level below wakeups. $1 ids
SELECT run_id, state FROM runs WHERE run_id = ANY($1::uuid[]) ORDER BY run_id FOR NO KEY UPDATE;

-- name: list_runs
-- A page of a workspace's runs, newest first, without results. $1 workspace, $2 agent (null: all),
-- $3 wakeup (null: all), $4 issue (null: all), $5 states (null: all), $6 id before which it starts
-- (null: newest), $7 limit
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id,
    retry_reason, reason, message, exit_code, summary, NULL::bytea AS result, responsible_user_id,
    occupied, executor_id, place, lease_token, lease_expires_at, deadline_at, idle_deadline_at,
    process_pid, process_start_ticks, trace_carrier, agent_carrier, created_at, started_at,
    finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress
FROM runs
WHERE workspace_id = $1
    AND ($2::uuid IS NULL OR agent_id = $2)
    AND ($3::uuid IS NULL OR wakeup_id = $3)
    AND ($4::uuid IS NULL OR issue_id = $4)
    AND ($5::text[] IS NULL OR state = ANY($5))
    AND ($6::uuid IS NULL OR run_id < $6)
ORDER BY run_id DESC
LIMIT $7;

-- name: run_costs
-- What attempts cost so far; those that nobody priced are missing. $1 runs
SELECT run_id, sum(cost_cents) AS cost_cents FROM cost_events
WHERE run_id = ANY($1::uuid[]) AND cost_cents IS NOT NULL
GROUP BY run_id;

-- name: runs_of_wakeup
-- The attempts of a wakeup, newest first. $1 wakeup
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress
FROM runs WHERE wakeup_id = $1 ORDER BY attempt DESC;

-- name: runs_of_issue
-- The newest attempts on an issue. $1 issue, $2 limit
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress
FROM runs WHERE issue_id = $1 ORDER BY run_id DESC LIMIT $2;

-- name: runs_of_agent
-- The newest attempts of an agent. $1 agent, $2 limit
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress
FROM runs WHERE agent_id = $1 ORDER BY run_id DESC LIMIT $2;

-- name: holds_run
-- Whether a lease still counts, and the run it holds has not ended. $1 run, $2 token
SELECT EXISTS (
    SELECT FROM runs WHERE run_id = $1 AND lease_token = $2 AND finished_at IS NULL
);

-- name: renew_leases
-- Fenced by id and token alone. $1 runs, $2 tokens, $3 lease (interval)
UPDATE runs r
SET lease_expires_at = clock() + $3::interval
FROM unnest($1::uuid[], $2::uuid[]) AS l (run_id, token)
WHERE r.run_id = l.run_id AND r.lease_token = l.token
RETURNING r.run_id;

-- name: end_running_run
-- Any replica may end a run; whoever holds it then sees to its process and its follow-up.
-- $1 run, $2 state, $3 reason, $4 message
UPDATE runs
SET state = $2, reason = $3, message = $4, finished_at = clock(), event_seq = event_seq + 1
WHERE run_id = $1 AND state = 'running'
RETURNING run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress, event_seq;

-- name: insert_run_events
-- The facts of runs, in order. $1 runs, $2 sequence numbers, $3 types, $4 messages, $5 facts
INSERT INTO run_events (run_id, seq, type, message, facts)
SELECT e.run_id, e.seq, e.type, e.message, e.facts
FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::text[], $5::jsonb[])
    AS e (run_id, seq, type, message, facts);

-- name: run_events
-- What happened in a run last. $1 run, $2 limit
SELECT seq, type, message, created_at FROM run_events WHERE run_id = $1 ORDER BY seq DESC LIMIT $2;

-- name: note_progress
-- It left something that others can see. $1 run
UPDATE runs SET left_progress = true WHERE run_id = $1 AND NOT left_progress;
