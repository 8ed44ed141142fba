-- name: upsert_job
-- A registration repeated at every start of its owner; returns the row as stored.
-- $1 name, $2 handler, $3 catch_up_window, $4 max_lateness, $5 run_timeout, $6 stale_timeout,
-- $7 heartbeat_interval, $8 max_attempts, $9 retry_backoff, $10 retry_deadline
INSERT INTO jobs (name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
                  heartbeat_interval, max_attempts, retry_backoff, retry_deadline)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (name) DO UPDATE SET
    handler = excluded.handler,
    catch_up_window = excluded.catch_up_window,
    max_lateness = excluded.max_lateness,
    run_timeout = excluded.run_timeout,
    stale_timeout = excluded.stale_timeout,
    heartbeat_interval = excluded.heartbeat_interval,
    max_attempts = excluded.max_attempts,
    retry_backoff = excluded.retry_backoff,
    retry_deadline = excluded.retry_deadline,
    updated_at = clock()
RETURNING name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
          heartbeat_interval, max_attempts, retry_backoff, retry_deadline, created_at, updated_at;

-- name: list_jobs
-- A page of jobs by name. $1 after this name (or null), $2 limit
SELECT name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, created_at, updated_at
FROM jobs
WHERE $1::text IS NULL OR name > $1
ORDER BY name
LIMIT $2;

-- name: jobs_by_name
-- The settings of the jobs a batch touches. $1 names
SELECT name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, created_at, updated_at
FROM jobs
WHERE name = ANY ($1::text[]);
