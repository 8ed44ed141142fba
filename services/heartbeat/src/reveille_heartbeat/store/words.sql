-- name: note_events
-- One more fact each about runs that their callers hold, with what is told of it. A run that is
-- missing in the answer is not its writer's any more. The rows are locked in order, as everywhere.
-- $1 runs, $2 tokens
WITH held AS MATERIALIZED (
    SELECT r.run_id FROM runs r
    JOIN unnest($1::uuid[], $2::uuid[]) AS g (run_id, token)
        ON g.run_id = r.run_id AND g.token = r.lease_token
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r
)
UPDATE runs r
SET event_seq = r.event_seq + 1
FROM wakeup_requests w
WHERE r.run_id IN (SELECT run_id FROM held) AND w.wakeup_id = r.wakeup_id
RETURNING r.run_id, r.event_seq, r.workspace_id, r.agent_id, r.issue_id, r.wakeup_id,
    w.occurrence_key, w.trace_carrier;

-- name: set_progress
-- What agents say they are doing, over what they said before. $1 runs, $2 tokens, $3 progress
WITH given AS MATERIALIZED (
    SELECT g.run_id, g.token, g.progress
    FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS g (run_id, token, progress)
),
held AS MATERIALIZED (
    SELECT r.run_id FROM runs r JOIN given g ON g.run_id = r.run_id AND g.token = r.lease_token
    WHERE r.finished_at IS NULL
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r
)
UPDATE runs r
SET progress = g.progress, progress_at = clock()
FROM given g
WHERE r.run_id = g.run_id AND r.run_id IN (SELECT run_id FROM held);
