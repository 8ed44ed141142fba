-- name: prune_runs
-- Forgets runs that ended long ago, and their keys with them. $1 age to keep, $2 limit
DELETE FROM runs
WHERE ctid = ANY(ARRAY(
        SELECT ctid
        FROM runs
        WHERE finished_at < (SELECT clock()) - $1::interval
        ORDER BY finished_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    AND finished_at < (SELECT clock()) - $1::interval;

-- name: prune_quota_periods
-- Forgets periods of which no run is kept. $1 age to keep
DELETE FROM quota_periods WHERE period_end < (SELECT clock()) - $1::interval;

-- name: prune_secret_edits
-- Forgets edits of secrets that nobody repeats any more. $1 age to keep
DELETE FROM secret_edits WHERE created_at < (SELECT clock()) - $1::interval;

-- name: failing
-- Rules in force of whose runs nearly all failed, counted since they came into force. A run that was
-- given up without its body has tried nothing, and tells nothing of its rule.
-- $1 how far to look back, $2 least runs, $3 least share
SELECT a.id, c.ended, c.failed
FROM (
    SELECT r.autopilot_id, count(*) AS ended, count(*) FILTER (WHERE r.state = 'failed') AS failed
    FROM runs r
    JOIN autopilots b ON b.id = r.autopilot_id
    WHERE r.finished_at >= (SELECT clock()) - $1::interval AND r.state IN ('completed', 'failed')
        AND b.status = 'active' AND r.created_at >= b.active_since AND r.payload_ready
    GROUP BY r.autopilot_id
) c
JOIN autopilots a ON a.id = c.autopilot_id
WHERE c.ended >= $2 AND c.failed >= $3::float8 * c.ended
ORDER BY a.id;

-- name: ended_since
-- The same figures of one rule, read again under its lock. $1 id, $2 how far to look back
SELECT count(*) AS ended, count(*) FILTER (WHERE r.state = 'failed') AS failed
FROM autopilots a
JOIN runs r ON r.autopilot_id = a.id AND r.created_at >= a.active_since
WHERE a.id = $1 AND r.finished_at >= (SELECT clock()) - $2::interval
    AND r.state IN ('completed', 'failed') AND r.payload_ready;

-- name: notice_skip_streaks
-- Rules in force whose newest runs were all skipped, once per streak: a run that was not skipped
-- ends it. $1 how many runs make a streak, $2 how far to look back
UPDATE autopilots a
SET skip_noticed_at = clock()
FROM (
    SELECT DISTINCT autopilot_id AS id
    FROM runs
    WHERE finished_at >= (SELECT clock()) - $2::interval AND state = 'skipped'
) recent
WHERE a.id = recent.id AND a.status = 'active'
    AND (
        SELECT count(*) = $1 AND bool_and(l.state = 'skipped')
        FROM (
            SELECT r.state
            FROM runs r
            WHERE r.autopilot_id = a.id AND r.created_at >= a.active_since
            ORDER BY r.id DESC
            LIMIT $1
        ) l
    )
    AND (
        a.skip_noticed_at IS NULL
        OR a.skip_noticed_at < a.active_since
        OR EXISTS (
            SELECT FROM runs r
            WHERE r.autopilot_id = a.id AND r.state <> 'skipped'
                AND r.created_at > a.skip_noticed_at
        )
    )
RETURNING a.id, a.workspace_id, a.title, a.creator_user_id,
    (SELECT r.reason FROM runs r WHERE r.autopilot_id = a.id ORDER BY r.id DESC LIMIT 1) AS reason;

-- name: prune_rule_versions
-- Forgets what nothing kept refers to. $1 age to keep, $2 limit
SELECT prune_rule_versions($1::interval, $2::integer);
