-- name: held_horizon
-- Whoever reads an old snapshot keeps the dead rows of every table alive.
-- $1: transactions
SELECT pid,
       coalesce(nullif(application_name, ''), backend_type) AS application,
       age(backend_xmin) AS behind
FROM pg_stat_activity
WHERE age(backend_xmin) > $1
ORDER BY age(backend_xmin) DESC;

-- name: connection_usage
-- Replicas that find no free connection stop serving.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       current_setting('max_connections')::int AS allowed;
