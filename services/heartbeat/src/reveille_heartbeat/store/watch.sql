-- name: watched_runs
-- Runs as they stand, and what tells whether anything about them moved. $1 ids
SELECT run_id, workspace_id, agent_id, wakeup_id, issue_id, state, attempt, retry_of_run_id, retry_reason,
    reason, message, exit_code, summary, result, responsible_user_id, occupied, executor_id, place,
    lease_token, lease_expires_at, deadline_at, idle_deadline_at, process_pid, process_start_ticks,
    trace_carrier, agent_carrier, created_at, started_at, finished_at, follow_up_done_at, start_by,
    scheduled_retry_at, failure_class, retry_not_before, comment_status, left_progress,
    last_output_at, progress, event_seq, progress_at
FROM runs
WHERE run_id = ANY($1::uuid[]);

-- name: events_after
-- What happened in runs after sequence numbers, each place's in order.
-- $1 runs, $2 sequence numbers, $3 events per place
SELECT w.place, e.seq, e.type, e.message, e.facts, e.created_at
FROM unnest($1::uuid[], $2::integer[]) WITH ORDINALITY AS w (run_id, seq, place)
CROSS JOIN LATERAL (
    SELECT r.seq, r.type, r.message, r.facts, r.created_at FROM run_events r
    WHERE r.run_id = w.run_id AND r.seq > w.seq
    ORDER BY r.seq
    LIMIT $3
) e
ORDER BY w.place, e.seq;
