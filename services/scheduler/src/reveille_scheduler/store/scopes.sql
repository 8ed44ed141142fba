-- name: upsert_scope
-- The owner's wish, unless a newer one is stored already: then no row comes back.
-- $1 id, $2 job_name, $3 kind, $4 scope_id, $5 cron, $6 time_zone, $7 enabled, $8 revision,
-- $9 effective_from, $10 next_plan_at
INSERT INTO scopes AS stored (id, job_name, kind, scope_id, cron, time_zone, enabled, revision,
                              effective_from, next_plan_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (job_name, kind, scope_id) DO UPDATE SET
    cron = excluded.cron,
    time_zone = excluded.time_zone,
    enabled = excluded.enabled,
    revision = excluded.revision,
    effective_from = excluded.effective_from,
    next_plan_at = excluded.next_plan_at,
    plan_error = '',
    deleted_at = NULL,
    updated_at = clock()
WHERE stored.revision < excluded.revision
RETURNING id;

-- name: delete_scope
-- A tombstone, also for a scope that never arrived: its late creation must find the deletion.
-- $1 id, $2 job_name, $3 kind, $4 scope_id, $5 revision
INSERT INTO scopes AS stored (id, job_name, kind, scope_id, cron, time_zone, enabled, revision,
                              effective_from, deleted_at)
VALUES ($1, $2, $3, $4, '', '', false, $5, clock(), clock())
ON CONFLICT (job_name, kind, scope_id) DO UPDATE SET
    enabled = false,
    revision = excluded.revision,
    next_plan_at = NULL,
    deleted_at = clock(),
    updated_at = clock()
WHERE stored.revision < excluded.revision;

-- name: scopes_by_key
-- The scopes as stored. $1 job names, $2 kinds, $3 scope ids
SELECT s.id, s.job_name, s.kind, s.scope_id, s.cron, s.time_zone, s.enabled, s.revision,
       s.effective_from, s.next_plan_at, s.plan_error, s.deleted_at
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (job_name, kind, scope_id)
JOIN scopes AS s USING (job_name, kind, scope_id);

-- name: list_scopes
-- A page of a job's scopes. $1 job_name, $2 after kind (or null), $3 after scope_id, $4 limit
SELECT id, job_name, kind, scope_id, cron, time_zone, enabled, revision,
       effective_from, next_plan_at, plan_error, deleted_at
FROM scopes
WHERE job_name = $1 AND ($2::text IS NULL OR (kind, scope_id) > ($2, $3))
ORDER BY kind, scope_id
LIMIT $4;

-- name: lock_due_scopes
-- Takes due scopes off their index; one whose last occurrence still runs waits. $1 limit
SELECT id
FROM scopes
WHERE ctid = ANY (ARRAY(
    SELECT due.ctid
    FROM scopes AS due
    WHERE due.enabled AND due.deleted_at IS NULL AND due.next_plan_at <= (SELECT clock())
      AND NOT EXISTS (
          SELECT 1 FROM executions AS busy
          WHERE busy.state = 'running' AND busy.job_name = due.job_name
            AND busy.scope_kind = due.kind AND busy.scope_id = due.scope_id)
    ORDER BY due.next_plan_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED));

-- name: due_scopes
-- What planning needs to know of scopes that are locked. A second statement, so that it sees what
-- the holder before us committed. $1 ids
SELECT s.id, s.job_name, s.kind, s.scope_id, s.cron, s.time_zone, s.effective_from,
       (SELECT e.plan_time
        FROM executions AS e
        WHERE e.job_name = s.job_name AND e.scope_kind = s.kind AND e.scope_id = s.scope_id
        ORDER BY e.plan_time DESC
        LIMIT 1) AS latest_plan,
       EXISTS (
           SELECT 1 FROM executions AS busy
           WHERE busy.state = 'running' AND busy.job_name = s.job_name
             AND busy.scope_kind = s.kind AND busy.scope_id = s.scope_id) AS busy,
       (SELECT clock()) AS now
FROM scopes AS s
WHERE s.id = ANY ($1::uuid[]) AND s.enabled AND s.deleted_at IS NULL;

-- name: move_scopes
-- Where planning looks next. $1 ids, $2 next_plan_at, $3 plan_error
UPDATE scopes AS s
SET next_plan_at = moved.next_plan_at, plan_error = moved.plan_error
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS moved (id, next_plan_at, plan_error)
WHERE s.id = moved.id;

-- name: explain_scopes
-- Scopes by their owner's id, for an explanation. $1 scope_id
SELECT id, job_name, kind, scope_id, cron, time_zone, enabled, revision,
       effective_from, next_plan_at, plan_error, deleted_at, updated_at, (SELECT clock()) AS now
FROM scopes
WHERE scope_id = $1;

-- name: scopes_now
-- The moment from which a scope without one of its own begins to count.
SELECT clock();
