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
    WHERE r.run_id = ANY($1::uuid[])
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
    AND run_day = (SELECT (created_at AT TIME ZONE 'UTC')::date FROM runs WHERE run_id = $1)
GROUP BY stream;

-- name: runs_with_stderr
-- Which of some runs have said anything on stderr. $1 runs
SELECT r.run_id FROM runs r
WHERE r.run_id = ANY($1::uuid[]) AND EXISTS (
    SELECT FROM run_log_chunks c
    WHERE c.run_id = r.run_id AND c.run_day = (r.created_at AT TIME ZONE 'UTC')::date
        AND c.stream = 'stderr'
);

-- name: read_log
-- The chunks of streams that reach past an offset, each place's in order. The day leads to one
-- partition. $1 runs, $2 when they were made, $3 streams, $4 offsets, $5 chunks per place
SELECT w.place, c.start_offset, c.data
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::bigint[]) WITH ORDINALITY
    AS w (run_id, made_at, stream, start, place)
CROSS JOIN LATERAL (
    SELECT l.start_offset, l.data FROM run_log_chunks l
    WHERE l.run_id = w.run_id AND l.run_day = (w.made_at AT TIME ZONE 'UTC')::date
        AND l.stream = w.stream
        AND l.start_offset >= coalesce((
            SELECT max(f.start_offset) FROM run_log_chunks f
            WHERE f.run_id = w.run_id AND f.run_day = (w.made_at AT TIME ZONE 'UTC')::date
                AND f.stream = w.stream AND f.start_offset <= w.start
        ), 0)
        AND l.end_offset > w.start
    ORDER BY l.start_offset
    LIMIT $5
) c
ORDER BY w.place, c.start_offset;
