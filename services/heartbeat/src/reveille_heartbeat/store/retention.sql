-- name: make_log_days
-- Partitions for the output of today and the days after. $1 days ahead
SELECT make_log_days($1);

-- name: drop_log_day
-- The oldest day of output that is out of its time. $1 time to keep
SELECT drop_log_day($1);

-- name: unplaced_output
-- How much output lies in the catch-all, for want of a day; counted up to a limit. $1 limit
SELECT count(*) FROM (SELECT FROM run_log_chunks_other LIMIT $1) o;

-- name: prune_unplaced_output
-- Old output of the catch-all. $1 time to keep, $2 limit
DELETE FROM run_log_chunks_other
WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM run_log_chunks_other o
    WHERE o.run_day < (((SELECT clock()) - $1::interval) AT TIME ZONE 'UTC')::date
    LIMIT $2
));

-- name: prune_runs
-- Old attempts with their events. $1 time to keep, $2 run beyond which it goes on, $3 limit
SELECT removed, looked_at, last_run FROM prune_runs($1, $2, $3);

-- name: prune_wakeups
-- Wakeups that were settled long ago and belong to no occurrence. Those that joined one go before
-- it, and its attempts, too. Questions are asked per row, whatever the statistics say.
-- $1 time to keep, $2 limit
WITH old AS MATERIALIZED (
    SELECT w.wakeup_id FROM wakeup_requests w
    WHERE w.occurrence_key IS NULL AND w.finished_at < (SELECT clock()) - $1::interval
        AND (
            SELECT true FROM wakeup_requests j WHERE j.joined_wakeup_id = w.wakeup_id LIMIT 1
        ) IS NULL
        AND (SELECT true FROM runs r WHERE r.wakeup_id = w.wakeup_id LIMIT 1) IS NULL
    ORDER BY w.finished_at
    LIMIT $2
),
payloads AS (
    DELETE FROM wakeup_payloads p USING old WHERE p.wakeup_id = old.wakeup_id
)
DELETE FROM wakeup_requests w USING old WHERE w.wakeup_id = old.wakeup_id;

-- name: prune_occurrences
-- Occurrences whose wakeup was settled long ago, and whose issue has ended so long ago, with that
-- wakeup: nobody sends their keys any more. $1 time to keep, $2 limit
WITH old AS MATERIALIZED (
    SELECT w.workspace_id, w.occurrence_key, w.wakeup_id
    FROM wakeup_requests w
    WHERE w.occurrence_key IS NOT NULL AND w.finished_at < (SELECT clock()) - $1::interval
        AND (
            SELECT true FROM occurrences o JOIN issues i ON i.issue_id = o.issue_id
            WHERE o.workspace_id = w.workspace_id AND o.occurrence_key = w.occurrence_key
                AND (
                    (i.deleted_at IS NULL AND i.status NOT IN ('done', 'cancelled'))
                    OR coalesce(i.deleted_at, i.ended_at, i.updated_at)
                        >= (SELECT clock()) - $1::interval
                )
            LIMIT 1
        ) IS NULL
        AND (
            SELECT true FROM wakeup_requests j WHERE j.joined_wakeup_id = w.wakeup_id LIMIT 1
        ) IS NULL
        AND (SELECT true FROM runs r WHERE r.wakeup_id = w.wakeup_id LIMIT 1) IS NULL
    ORDER BY w.finished_at
    LIMIT $2
),
keys AS (
    DELETE FROM occurrences o USING old
    WHERE o.workspace_id = old.workspace_id AND o.occurrence_key = old.occurrence_key
        AND o.wakeup_id = old.wakeup_id
),
payloads AS (
    DELETE FROM wakeup_payloads p USING old WHERE p.wakeup_id = old.wakeup_id
)
DELETE FROM wakeup_requests w USING old WHERE w.wakeup_id = old.wakeup_id;

-- name: prune_unused_keys
-- Keys that were cancelled before they made anything. $1 time to keep, $2 limit
DELETE FROM occurrences
WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM occurrences o
    WHERE o.wakeup_id IS NULL AND o.cancelled_at < (SELECT clock()) - $1::interval
    ORDER BY o.cancelled_at
    LIMIT $2
));

-- name: prune_costs
-- What attempts cost, long ago. $1 time to keep, $2 limit
DELETE FROM cost_events
WHERE ctid = ANY(ARRAY(
    SELECT c.ctid FROM cost_events c
    WHERE c.day < (((SELECT clock()) - $1::interval) AT TIME ZONE 'UTC')::date
    ORDER BY c.day
    LIMIT $2
));
