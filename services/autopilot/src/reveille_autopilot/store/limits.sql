-- name: lock_rules
-- Admissions of a rule follow each other, and its edits. Gives which version is in force. $1 ids
SELECT id, rule_version_id
FROM autopilots
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: overlapping
-- The open runs of rules, counted under their locks. $1 autopilot_ids
SELECT autopilot_id, count(*) FILTER (WHERE state <> 'buffered') AS active,
    count(*) FILTER (WHERE state = 'buffered') AS buffered
FROM runs
WHERE autopilot_id = ANY($1::uuid[]) AND finished_at IS NULL
GROUP BY autopilot_id;

-- name: cancel_others
-- Every open run of a rule but one shall be cancelled; the sweep does it.
-- $1 autopilot_ids, $2 the run of each that stays
UPDATE runs r
SET cancel_requested_at = coalesce(r.cancel_requested_at, clock()),
    cancel_requested_by = coalesce(r.cancel_requested_by, ''), next_attempt_at = clock()
FROM unnest($1::uuid[], $2::uuid[]) AS i (autopilot_id, kept)
WHERE r.autopilot_id = i.autopilot_id AND r.id <> i.kept AND r.finished_at IS NULL
RETURNING r.id;

-- name: alone
-- The rules whose ends must be told to a buffered run: those that allow one run at a time, and
-- those where one still waits. $1 run ids
SELECT DISTINCT r.autopilot_id AS id
FROM runs r
JOIN autopilots a ON a.id = r.autopilot_id
WHERE r.id = ANY($1::uuid[])
    AND (
        a.overlap_policy = 'buffer_one'
        OR EXISTS (
            SELECT FROM runs b
            WHERE b.autopilot_id = r.autopilot_id AND b.finished_at IS NULL
                AND b.state = 'buffered'
        )
    );

-- name: release_buffered
-- Lets a waiting run begin where no other is open; its time to be dispatched counts from now. A run
-- whose body is still missing waits for that. $1 autopilot_ids, all locked, $2 the time of a
-- schedule, $3 the time of the others
UPDATE runs r
SET state = 'pending',
    dispatch_deadline_at = clock() + CASE WHEN r.source = 'schedule' THEN $2::interval ELSE $3 END,
    next_attempt_at = CASE
        WHEN r.payload_ready THEN clock()
        ELSE clock() + CASE WHEN r.source = 'schedule' THEN $2::interval ELSE $3 END
    END
WHERE r.id IN (
        SELECT min(b.id::text)::uuid
        FROM runs b
        WHERE b.autopilot_id = ANY($1::uuid[]) AND b.state = 'buffered'
            AND b.finished_at IS NULL AND b.cancel_requested_at IS NULL
            AND NOT EXISTS (
                SELECT FROM runs o
                WHERE o.autopilot_id = b.autopilot_id AND o.finished_at IS NULL
                    AND o.state <> 'buffered'
            )
        GROUP BY b.autopilot_id
    )
    AND r.state = 'buffered'
RETURNING r.id, r.workspace_id, r.autopilot_id, r.occurrence_key, r.trace_carrier;

-- name: used_runs
-- How many runs count in a period: those open, those done, and those whose issue was made; counting
-- stops at the limit. With it comes the quota as it is now. $1 workspace_id, $2 period_start, $3 limit
SELECT w.quota_action, w.quota_limit, w.quota_period, (
        SELECT count(*)
        FROM (
            SELECT id
            FROM runs
            WHERE workspace_id = $1 AND quota_period_start = $2
                AND (finished_at IS NULL OR state = 'completed' OR issue_id IS NOT NULL)
            LIMIT $3
        ) counted
    ) AS used
FROM workspaces w
WHERE w.id = $1;

-- name: put_quota_periods
-- The rows whose locks order admissions. $1 workspace_ids, $2 period_starts, $3 period_ends
INSERT INTO quota_periods (workspace_id, period_start, period_end)
SELECT i.workspace_id, i.period_start, i.period_end
FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[])
    AS i (workspace_id, period_start, period_end)
ORDER BY i.workspace_id
ON CONFLICT (workspace_id, period_start) DO NOTHING;

-- name: lock_quota_periods
-- Admissions of a period follow each other. $1 workspace_ids, $2 period_starts
SELECT q.workspace_id
FROM quota_periods q
JOIN unnest($1::uuid[], $2::timestamptz[]) AS i (workspace_id, period_start)
    ON i.workspace_id = q.workspace_id AND i.period_start = q.period_start
ORDER BY q.workspace_id
FOR NO KEY UPDATE OF q;

-- name: count_blocked
-- One more was refused. $1 workspace_id, $2 period_start, $3 source, $4 how many
UPDATE quota_periods
SET blocked_counts = jsonb_set(
    blocked_counts, ARRAY[$3::text], to_jsonb(coalesce((blocked_counts ->> $3::text)::bigint, 0) + $4)
)
WHERE workspace_id = $1 AND period_start = $2;

-- name: blocked_counts
-- What was refused in a period. $1 workspace_id, $2 period_start
SELECT blocked_counts FROM quota_periods WHERE workspace_id = $1 AND period_start = $2;
