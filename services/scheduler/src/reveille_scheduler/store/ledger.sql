-- name: get_execution
-- One occurrence. $1 id
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at
FROM executions
WHERE id = $1;

-- name: list_executions
-- A page of all occurrences, newest planned first, merged from a page of each job: jobs are few, and
-- an index less is one write less for every occurrence.
-- $1 states (or null), $2 from plan_time (or null), $3 before plan_time (or null),
-- $4 after the row of this plan_time (or null), $5 and id, $6 limit
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.state, e.attempt,
       e.max_attempts, e.next_retry_at, e.runner_id, e.started_at, e.finished_at, e.reason,
       e.message, e.result, e.collapsed, e.trace_carrier, e.retry_until, e.requested_at
FROM jobs AS j
CROSS JOIN LATERAL (
    SELECT mine.id, mine.job_name, mine.scope_kind, mine.scope_id, mine.plan_time, mine.state,
           mine.attempt, mine.max_attempts, mine.next_retry_at, mine.runner_id, mine.started_at,
           mine.finished_at, mine.reason, mine.message, mine.result, mine.collapsed,
           mine.trace_carrier, mine.retry_until, mine.requested_at
    FROM executions AS mine
    WHERE mine.job_name = j.name AND ($1::text[] IS NULL OR mine.state = ANY ($1))
      AND mine.plan_time >= coalesce($2::timestamptz, '-infinity')
      AND mine.plan_time < coalesce($3::timestamptz, 'infinity')
      AND (mine.plan_time, mine.id) < (coalesce($4::timestamptz, 'infinity'),
                                       coalesce($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    ORDER BY mine.plan_time DESC, mine.id DESC
    LIMIT $6) AS e
ORDER BY e.plan_time DESC, e.id DESC
LIMIT $6;

-- name: list_job_executions
-- A page of a job, newest planned first.
-- $1 job, $2 states (or null), $3 from plan_time (or null), $4 before plan_time (or null),
-- $5 after the row of this plan_time (or null), $6 and id, $7 limit
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at
FROM executions
WHERE job_name = $1 AND ($2::text[] IS NULL OR state = ANY ($2))
  AND plan_time >= coalesce($3::timestamptz, '-infinity')
  AND plan_time < coalesce($4::timestamptz, 'infinity')
  AND (plan_time, id) < (coalesce($5::timestamptz, 'infinity'),
                         coalesce($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY plan_time DESC, id DESC
LIMIT $7;

-- name: list_scope_executions
-- A page of a scope, newest planned first.
-- $1 scope id, $2 states (or null), $3 from plan_time (or null), $4 before plan_time (or null),
-- $5 after the row of this plan_time (or null), $6 and id, $7 limit, $8 job (or null)
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at
FROM executions
WHERE scope_id = $1 AND ($8::text IS NULL OR job_name = $8)
  AND ($2::text[] IS NULL OR state = ANY ($2))
  AND plan_time >= coalesce($3::timestamptz, '-infinity')
  AND plan_time < coalesce($4::timestamptz, 'infinity')
  AND (plan_time, id) < (coalesce($5::timestamptz, 'infinity'),
                         coalesce($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY plan_time DESC, id DESC
LIMIT $7;

-- name: list_failed_executions
-- A page of failures, of one job or of all, for triage: they are few among many.
-- $1 job (or null), $2 states (or null), $3 from plan_time (or null), $4 before plan_time (or null),
-- $5 after the row of this plan_time (or null), $6 and id, $7 limit
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at
FROM executions
WHERE state = 'failed' AND ($1::text IS NULL OR job_name = $1)
  AND ($2::text[] IS NULL OR state = ANY ($2))
  AND plan_time >= coalesce($3::timestamptz, '-infinity')
  AND plan_time < coalesce($4::timestamptz, 'infinity')
  AND (plan_time, id) < (coalesce($5::timestamptz, 'infinity'),
                         coalesce($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY plan_time DESC, id DESC
LIMIT $7;

-- name: explain_execution
-- One occurrence, with its lease. $1 id
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at,
       stale_after, (SELECT clock()) AS now
FROM executions
WHERE id = $1;

-- name: explain_scope_executions
-- The newest occurrences of a scope, or the one of a time. $1 scope id, $2 plan time (or null)
SELECT id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at,
       stale_after, (SELECT clock()) AS now
FROM executions
WHERE scope_id = $1
  AND plan_time >= coalesce($2::timestamptz, '-infinity')
  AND plan_time <= coalesce($2::timestamptz, 'infinity')
ORDER BY plan_time DESC, id DESC
LIMIT 5;

-- name: ask_for_retry
-- A failure that was final gets new attempts. $1 id, $2 attempts, $3 how long it may be retried
UPDATE executions
SET next_retry_at = clock(), retry_until = clock() + $3::interval, requested_at = clock(),
    max_attempts = attempt + $2::integer, updated_at = clock()
WHERE id = $1 AND state = 'failed' AND next_retry_at IS NULL
RETURNING id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts, next_retry_at,
       runner_id, started_at, finished_at, reason, message, result, collapsed, trace_carrier,
       retry_until, requested_at;

-- name: executions_in_range
-- What the ledger knows of a scope's range. $1 job, $2 kind, $3 scope id, $4 from, $5 to
SELECT id, plan_time, state, reason, next_retry_at
FROM executions
WHERE job_name = $1 AND scope_kind = $2 AND scope_id = $3 AND plan_time BETWEEN $4 AND $5
ORDER BY plan_time;

-- name: latest_plan
-- The newest planned instant of a scope. $1 job, $2 kind, $3 scope id
SELECT plan_time
FROM executions
WHERE job_name = $1 AND scope_kind = $2 AND scope_id = $3
ORDER BY plan_time DESC
LIMIT 1;

-- name: ask_for_missed
-- Too late occurrences, promised again; the claim of retries executes them, those of one moment by
-- their plan times. $1 ids, $2 now
UPDATE executions
SET next_retry_at = $2, requested_at = $2, updated_at = clock()
WHERE id = ANY ($1::uuid[]) AND state = 'skipped' AND reason = 'too_late'
  AND next_retry_at IS NULL
RETURNING id;

-- name: insert_missed
-- Occurrences that were never recorded, promised; the claim of retries executes them, those of one
-- moment by their plan times.
-- $1 ids, $2 job, $3 kind, $4 scope id, $5 plan times, $6 max attempts, $7 message, $8 carriers, $9 now
INSERT INTO executions (id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts,
                        next_retry_at, retry_until, requested_at, finished_at, reason, message,
                        trace_carrier)
SELECT new.id, $2, $3, $4, new.plan_time, 'skipped', 0, $6, $9, $9, $9, clock(), 'too_late', $7,
       new.carrier
FROM unnest($1::uuid[], $5::timestamptz[], $8::jsonb[]) AS new (id, plan_time, carrier)
ON CONFLICT ON CONSTRAINT executions_occurrence DO NOTHING
RETURNING id;

-- name: prune_executions
-- Removes a stretch of old ends, oldest first. Kept are what is promised again, every key younger
-- than its job's window, and a live scope's newest occurrence, which planning counts from.
-- $1 kept for, $2 beyond finished_at, $3 beyond id, $4 limit
WITH stretch AS MATERIALIZED (
    SELECT e.id, e.finished_at, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.next_retry_at
    FROM executions AS e
    WHERE e.state <> 'running' AND (e.finished_at, e.id) > ($2::timestamptz, $3::uuid)
      AND e.finished_at < (SELECT clock()) - $1::interval
    ORDER BY e.finished_at, e.id
    LIMIT $4
), gone AS (
    DELETE FROM executions AS old
    USING stretch AS e
    LEFT JOIN jobs AS j ON j.name = e.job_name
    WHERE old.id = e.id AND old.state <> 'running' AND old.next_retry_at IS NULL
      AND e.plan_time < (SELECT clock())
          - greatest($1::interval, coalesce(j.catch_up_window, interval '0'))
      AND ((SELECT true FROM scopes AS s
            WHERE s.job_name = e.job_name AND s.kind = e.scope_kind
              AND s.scope_id = e.scope_id AND s.deleted_at IS NULL LIMIT 1) IS NULL
           OR (SELECT true FROM executions AS newer
               WHERE newer.job_name = e.job_name AND newer.scope_kind = e.scope_kind
                 AND newer.scope_id = e.scope_id AND newer.plan_time > e.plan_time
               LIMIT 1) IS NOT NULL)
    RETURNING old.id
)
SELECT (SELECT count(*) FROM gone) AS removed, count(*) AS looked_at,
       max(stretch.finished_at) AS finished_at,
       (array_agg(stretch.id ORDER BY stretch.finished_at DESC, stretch.id DESC))[1] AS id
FROM stretch;
