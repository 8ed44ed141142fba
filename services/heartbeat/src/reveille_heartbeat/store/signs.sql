-- name: record_processes
-- Which processes they are, before those may start their agents. A run that is missing in the
-- answer is not its writer's any more, or has ended, and its agent must not start. The rows are
-- locked in order, as everywhere. $1 runs, $2 tokens, $3 pids, $4 start ticks
WITH given AS MATERIALIZED (
    SELECT g.run_id, g.token, g.pid, g.ticks
    FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::bigint[])
        AS g (run_id, token, pid, ticks)
),
held AS MATERIALIZED (
    SELECT r.run_id FROM runs r JOIN given g ON g.run_id = r.run_id AND g.token = r.lease_token
    WHERE r.finished_at IS NULL
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r
),
recorded AS (
    UPDATE runs r
    SET process_pid = g.pid, process_start_ticks = g.ticks, event_seq = r.event_seq + 1
    FROM given g
    WHERE r.run_id = g.run_id AND r.run_id IN (SELECT run_id FROM held)
    RETURNING r.run_id, r.event_seq, r.process_pid
)
INSERT INTO run_events (run_id, seq, type, message, facts)
SELECT run_id, event_seq, 'run.process_started', 'process ' || process_pid,
    jsonb_build_object('pid', process_pid)
FROM recorded
RETURNING run_id;

-- name: extend_idle
-- They were heard of, so long ago. $1 runs, $2 tokens, $3 seconds since their last signs of life
WITH given AS MATERIALIZED (
    SELECT g.run_id, g.token, clock() - make_interval(secs => g.seconds) AS heard_at
    FROM unnest($1::uuid[], $2::uuid[], $3::double precision[]) AS g (run_id, token, seconds)
),
held AS MATERIALIZED (
    SELECT r.run_id FROM runs r JOIN given g ON g.run_id = r.run_id AND g.token = r.lease_token
    WHERE r.finished_at IS NULL
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r
)
UPDATE runs r
SET last_output_at = greatest(r.last_output_at, g.heard_at),
    idle_deadline_at = CASE WHEN r.idle_deadline_at IS NOT NULL AND a.idle_timeout > '0'
        THEN g.heard_at + a.idle_timeout END
FROM given g, agents a
WHERE r.run_id = g.run_id AND r.run_id IN (SELECT run_id FROM held) AND a.agent_id = r.agent_id;
