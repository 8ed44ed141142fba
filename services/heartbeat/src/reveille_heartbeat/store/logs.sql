-- name: append_log
-- Output as it came, fenced by the lease of its run: the answer names the runs that are still held.
-- A repeat after an unknown COMMIT finds its chunks in place.
-- $1 runs, $2 tokens, $3 streams, $4 start offsets, $5 data
WITH chunks AS MATERIALIZED (
    SELECT c.run_id, c.token, c.stream, c.start_offset, c.data
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[])
        AS c (run_id, token, stream, start_offset, data)
),
held AS MATERIALIZED (
    SELECT DISTINCT r.run_id, (r.created_at AT TIME ZONE 'UTC')::date AS run_day
    FROM runs r JOIN chunks c ON r.run_id = c.run_id AND r.lease_token = c.token
),
written AS (
    INSERT INTO run_log_chunks (run_id, run_day, stream, start_offset, end_offset, data)
    SELECT c.run_id, h.run_day, c.stream, c.start_offset, c.start_offset + length(c.data), c.data
    FROM chunks c JOIN held h ON h.run_id = c.run_id
    ON CONFLICT DO NOTHING
)
SELECT run_id FROM held;

-- name: log_ends
-- How far each stream of a run is stored. $1 run
SELECT stream, max(end_offset) AS end_offset FROM run_log_chunks
WHERE run_id = $1
GROUP BY stream;

-- name: runs_with_stderr
-- Which of some runs have said anything on stderr. $1 runs
SELECT r.run_id FROM unnest($1::uuid[]) AS r (run_id)
WHERE EXISTS (
    SELECT 1 FROM run_log_chunks c WHERE c.run_id = r.run_id AND c.stream = 'stderr'
);

-- name: read_log
-- The chunks of a stream that reach past an offset. $1 run, $2 stream, $3 offset, $4 limit
SELECT start_offset, end_offset, data FROM run_log_chunks
WHERE run_id = $1 AND stream = $2
    AND start_offset >= coalesce((
        SELECT max(start_offset) FROM run_log_chunks
        WHERE run_id = $1 AND stream = $2 AND start_offset <= $3
    ), 0)
    AND end_offset > $3
ORDER BY start_offset
LIMIT $4;
