-- name: upsert_job
-- A registration repeated at every start of its owner; returns the row as stored. A pause stays.
-- $1 name, $2 handler, $3 catch_up_window, $4 max_lateness, $5 run_timeout, $6 stale_timeout,
-- $7 heartbeat_interval, $8 max_attempts, $9 retry_backoff, $10 retry_deadline,
-- $11 schedule_delay, $12 catch_up, $13 max_plans_per_tick, $14 allow_stale_reentry,
-- $15 plans_per_scope, $16 jitter
INSERT INTO jobs (name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
                  heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay,
                  catch_up, max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
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
    schedule_delay = excluded.schedule_delay,
    catch_up = excluded.catch_up,
    max_plans_per_tick = excluded.max_plans_per_tick,
    allow_stale_reentry = excluded.allow_stale_reentry,
    plans_per_scope = excluded.plans_per_scope,
    jitter = excluded.jitter,
    updated_at = clock()
RETURNING name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay, catch_up,
       max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter,
       paused_at, pause_note, created_at, updated_at;

-- name: list_jobs
-- A page of jobs by name. $1 after this name (or null), $2 limit
SELECT name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay, catch_up,
       max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter,
       paused_at, pause_note, created_at, updated_at
FROM jobs
WHERE $1::text IS NULL OR name > $1
ORDER BY name
LIMIT $2;

-- name: jobs_by_name
-- The settings of the jobs a batch touches. $1 names
SELECT name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay, catch_up,
       max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter,
       paused_at, pause_note, created_at, updated_at
FROM jobs
WHERE name = ANY ($1::text[]);

-- name: pause_job
-- Stops planning and retries; a second pause keeps the time of the first. $1 name, $2 note
UPDATE jobs
SET paused_at = coalesce(paused_at, clock()), pause_note = $2
WHERE name = $1
RETURNING name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay, catch_up,
       max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter,
       paused_at, pause_note, created_at, updated_at;

-- name: resume_job
-- Ends a pause. $1 name
UPDATE jobs
SET paused_at = NULL, pause_note = ''
WHERE name = $1
RETURNING name, handler, catch_up_window, max_lateness, run_timeout, stale_timeout,
       heartbeat_interval, max_attempts, retry_backoff, retry_deadline, schedule_delay, catch_up,
       max_plans_per_tick, allow_stale_reentry, plans_per_scope, jitter,
       paused_at, pause_note, created_at, updated_at;

-- name: due_jobs
-- What each job has to do now: one index probe each, however many scopes there are. (EXISTS would
-- let the planner read all of a table into a hash.)
SELECT j.name,
       (SELECT true FROM scopes AS s
        WHERE s.job_name = j.name AND s.enabled AND s.deleted_at IS NULL AND s.source <> 'hook'
          AND s.next_plan_at <= (SELECT clock())
        ORDER BY s.next_plan_at LIMIT 1) IS NOT NULL AS plans,
       (SELECT true FROM scopes AS s
        WHERE s.job_name = j.name AND s.enabled AND s.deleted_at IS NULL AND s.source = 'hook'
          AND s.next_plan_at <= (SELECT clock())
        ORDER BY s.next_plan_at LIMIT 1) IS NOT NULL AS hooks,
       (SELECT true FROM executions AS e
        WHERE e.job_name = j.name AND e.next_retry_at <= (SELECT clock())
        ORDER BY e.next_retry_at LIMIT 1) IS NOT NULL AS retries
FROM jobs AS j
WHERE j.paused_at IS NULL
ORDER BY j.name;
