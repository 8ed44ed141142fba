-- name: queue_sizes
-- How many runs wait, for their turn and for their time, and how many wakes wait for a run; with the
-- seconds that the oldest has waited. All three are partial indexes.
SELECT 'heartbeat.runs' AS queue, count(*) AS depth,
    extract(epoch FROM (SELECT clock()) - min(created_at))::double precision AS oldest
FROM runs WHERE state = 'queued'
UNION ALL
SELECT 'heartbeat.retries', count(*),
    extract(epoch FROM (SELECT clock()) - min(scheduled_retry_at))::double precision
FROM runs WHERE state = 'scheduled_retry'
UNION ALL
SELECT 'heartbeat.deferred', count(*),
    extract(epoch FROM (SELECT clock()) - min(created_at))::double precision
FROM wakeup_requests WHERE state = 'deferred';

-- name: dead_rows
-- Versions of rows that nothing needs and that are still in the way: claims read past them. They stay
-- while somebody keeps an old snapshot open, or autovacuum does not get to them.
SELECT relname AS name, n_dead_tup AS dead, n_live_tup AS live FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname IN ('runs', 'wakeup_requests');
