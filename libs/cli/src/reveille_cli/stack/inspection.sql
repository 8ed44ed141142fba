-- name: long_transactions
-- A transaction that stays open keeps dead rows of every table alive.
-- $1: seconds
SELECT pid,
       coalesce(nullif(application_name, ''), backend_type) AS application,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - make_interval(secs => $1)
  AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)
ORDER BY xact_start;

-- name: connection_usage
-- Replicas that find no free connection stop serving.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       current_setting('max_connections')::int AS allowed;
