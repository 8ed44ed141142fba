-- name: stopped_runs
-- Runs of this executor that somebody else has ended. $1 executor
SELECT run_id FROM runs
WHERE executor_id = $1 AND occupied AND finished_at IS NOT NULL;

-- name: held_in_place
-- Runs whose processes live where this executor can see them. $1 place
SELECT run_id, lease_token, executor_id FROM runs WHERE occupied AND place = $1
ORDER BY run_id;

-- name: expired_leases
-- Runs whose holder has not renewed in time; one look is not enough to take them. $1 limit
SELECT run_id, lease_token FROM runs
WHERE occupied AND lease_expires_at < (SELECT clock())
ORDER BY lease_expires_at
LIMIT $1;

-- name: take_over
-- A new holder, fenced by the old token. $1 run, $2 old token, $3 new token, $4 executor,
-- $5 lease (interval), $6 whether the lease must have expired
UPDATE runs
SET lease_token = $3, lease_expires_at = clock() + $5::interval, executor_id = $4,
    event_seq = event_seq + 1
WHERE run_id = $1 AND lease_token = $2
    AND (NOT $6::boolean OR lease_expires_at < (SELECT clock()))
RETURNING run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, prompt_built_at, last_output_at,
    progress, event_seq;

-- name: past_deadline
-- Runs that took longer than they may. $1 limit
SELECT run_id FROM runs
WHERE occupied AND finished_at IS NULL
    AND deadline_at < (SELECT clock())
LIMIT $1;

-- name: silent_runs
-- Runs that have been silent longer than they may; one look is not enough to end them. $1 limit
SELECT run_id FROM runs
WHERE occupied AND finished_at IS NULL
    AND idle_deadline_at < (SELECT clock())
LIMIT $1;

-- name: still_past_deadline
-- Asked again under the lock. $1 run, $2 whether silence is meant
SELECT run_id FROM runs
WHERE run_id = $1 AND finished_at IS NULL AND occupied
    AND CASE WHEN $2 THEN idle_deadline_at ELSE deadline_at END < (SELECT clock());

-- name: finished_of
-- Which of these runs are over, so that their spools can go. $1 runs
SELECT run_id FROM runs WHERE run_id = ANY($1::uuid[]) AND follow_up_done_at IS NOT NULL;
