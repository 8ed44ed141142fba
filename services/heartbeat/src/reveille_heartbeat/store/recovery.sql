-- name: stopped_runs
-- Runs of this executor that somebody else has ended: cancelled, or past a deadline. Those that it
-- ended itself wait for their follow-up, and need not be told. $1 executor
SELECT run_id FROM runs
WHERE executor_id = $1 AND occupied AND finished_at IS NOT NULL
    AND state IN ('cancelled', 'timed_out');

-- name: held_in_place
-- A page of the runs whose processes live where this executor can see them.
-- $1 place, $2 run after which it starts, $3 limit
SELECT run_id, lease_token, executor_id FROM runs
WHERE occupied AND place = $1 AND run_id > $2
ORDER BY run_id
LIMIT $3;

-- name: expired_leases
-- A page of the runs whose holder has not renewed in time; one look is not enough to take them.
-- $1 run after which it starts, $2 limit
SELECT run_id, lease_token FROM runs
WHERE occupied AND lease_expires_at < (SELECT clock()) AND run_id > $1
ORDER BY run_id
LIMIT $2;

-- name: take_over
-- A new holder, fenced by the old token. The time in which nobody could tell of the agent is no
-- silence: the new holder gets a lease's time to say when it was last heard of. $1 run,
-- $2 old token, $3 new token, $4 executor, $5 lease (interval), $6 whether the lease must have expired
UPDATE runs
SET lease_token = $3, lease_expires_at = clock() + $5::interval, executor_id = $4,
    -- Not for an agent that may be silent for ever: GREATEST would give it a limit.
    idle_deadline_at = CASE WHEN idle_deadline_at IS NOT NULL
        THEN greatest(idle_deadline_at, clock() + $5::interval) END,
    event_seq = event_seq + 1
WHERE run_id = $1 AND lease_token = $2
    AND (NOT $6::boolean OR lease_expires_at < (SELECT clock()))
RETURNING run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by, scheduled_retry_at,
    failure_class, retry_not_before, comment_status, left_progress, last_output_at,
    progress, event_seq;

-- name: hand_over
-- Its executor stops and leaves the agent at work: in the same place anybody may go on at once,
-- elsewhere when the lease has run out. No row: it is somebody else's already. $1 run, $2 token
UPDATE runs SET executor_id = '', event_seq = event_seq + 1
WHERE run_id = $1 AND lease_token = $2
RETURNING event_seq;

-- name: past_deadline
-- A page of the runs that took longer than they may. $1 run after which it starts, $2 limit
SELECT run_id FROM runs
WHERE occupied AND finished_at IS NULL AND deadline_at < (SELECT clock()) AND run_id > $1
ORDER BY run_id
LIMIT $2;

-- name: silent_runs
-- A page of the runs that have been silent longer than they may; one look is not enough to end
-- them. While a run has no living holder nobody can tell of its agent: that is not its silence.
-- $1 run after which it starts, $2 limit
SELECT run_id FROM runs
WHERE occupied AND finished_at IS NULL AND run_id > $1
    AND idle_deadline_at < (SELECT clock()) AND lease_expires_at > (SELECT clock())
ORDER BY run_id
LIMIT $2;

-- name: still_past_deadline
-- Asked again under the lock; gives the limit. $1 run, $2 whether silence is meant
SELECT CASE WHEN $2 THEN a.idle_timeout ELSE r.deadline_at - r.started_at END AS "limit"
FROM runs r
JOIN agents a ON a.agent_id = r.agent_id
WHERE r.run_id = $1 AND r.finished_at IS NULL AND r.occupied
    AND CASE WHEN $2 THEN r.idle_deadline_at ELSE r.deadline_at END < (SELECT clock())
    AND (NOT $2 OR (a.idle_timeout > '0' AND r.lease_expires_at > (SELECT clock())));

-- name: stale_locks
-- A page of the issues none of whose runs is live: neither the one that holds it nor the one that
-- owns its work, waiting ones included. $1 issue after which it starts, $2 limit
SELECT i.issue_id, i.execution_run_id, i.checkout_run_id FROM issues i
WHERE (i.execution_run_id IS NOT NULL OR i.checkout_run_id IS NOT NULL) AND i.issue_id > $1
    AND NOT EXISTS (
        SELECT FROM runs r
        WHERE r.run_id IN (i.execution_run_id, i.checkout_run_id)
            AND (r.occupied OR r.state IN ('queued', 'scheduled_retry'))
    )
ORDER BY i.issue_id
LIMIT $2;

-- name: clear_stale_locks
-- A compare-and-set on the very runs that were seen; the issues are locked. A run that is over
-- stays so. $1 issues, $2 runs that hold them, $3 runs that own their work
UPDATE issues i
SET execution_run_id = NULL, checkout_run_id = NULL, revision = i.revision + 1,
    updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS s (issue_id, execution_run_id, checkout_run_id)
WHERE i.issue_id = s.issue_id
    AND i.execution_run_id IS NOT DISTINCT FROM s.execution_run_id
    AND i.checkout_run_id IS NOT DISTINCT FROM s.checkout_run_id
RETURNING i.issue_id;

-- name: finished_of
-- Which of these runs are over, so that their spools can go. $1 runs
SELECT run_id FROM runs WHERE run_id = ANY($1::uuid[]) AND follow_up_done_at IS NOT NULL;
