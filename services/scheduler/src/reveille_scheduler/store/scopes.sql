-- name: upsert_scopes
-- Owners' wishes, each unless a newer one is stored already; a batch names a scope once.
-- $1 ids, $2 job names, $3 kinds, $4 scope ids, $5 sources, $6 crons, $7 time zones, $8 cadences,
-- $9 run_at, $10 catch_up, $11 max_lateness, $12 enabled, $13 revisions, $14 effective_from,
-- $15 next_plan_at
INSERT INTO scopes AS stored (id, job_name, kind, scope_id, source, cron, time_zone, cadence,
                              run_at, catch_up, max_lateness, enabled, revision, effective_from,
                              next_plan_at)
SELECT new.id, new.job_name, new.kind, new.scope_id, new.source, new.cron, new.time_zone,
       new.cadence, new.run_at, new.catch_up, new.max_lateness, new.enabled, new.revision,
       new.effective_from, new.next_plan_at
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::interval[], $9::timestamptz[], $10::text[], $11::interval[], $12::boolean[],
            $13::bigint[], $14::timestamptz[], $15::timestamptz[])
     AS new (id, job_name, kind, scope_id, source, cron, time_zone, cadence, run_at, catch_up,
             max_lateness, enabled, revision, effective_from, next_plan_at)
ON CONFLICT (job_name, kind, scope_id) DO UPDATE SET
    source = excluded.source,
    cron = excluded.cron,
    time_zone = excluded.time_zone,
    cadence = excluded.cadence,
    run_at = excluded.run_at,
    catch_up = excluded.catch_up,
    max_lateness = excluded.max_lateness,
    enabled = excluded.enabled,
    revision = excluded.revision,
    effective_from = excluded.effective_from,
    next_plan_at = excluded.next_plan_at,
    plan_error = '',
    deleted_at = NULL,
    updated_at = clock()
WHERE stored.revision < excluded.revision;

-- name: delete_scopes
-- Tombstones, also for scopes that never arrived: a late creation must find the deletion.
-- $1 ids, $2 job names, $3 kinds, $4 scope ids, $5 revisions
INSERT INTO scopes AS stored (id, job_name, kind, scope_id, source, enabled, revision,
                              effective_from, deleted_at)
SELECT gone.id, gone.job_name, gone.kind, gone.scope_id, 'cron', false, gone.revision,
       clock(), clock()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[])
     AS gone (id, job_name, kind, scope_id, revision)
ON CONFLICT (job_name, kind, scope_id) DO UPDATE SET
    enabled = false,
    revision = excluded.revision,
    next_plan_at = NULL,
    deleted_at = clock(),
    updated_at = clock()
WHERE stored.revision < excluded.revision;

-- name: scopes_by_key
-- The scopes as stored. $1 job names, $2 kinds, $3 scope ids
SELECT s.id, s.job_name, s.kind, s.scope_id, s.source, s.cron, s.time_zone, s.cadence, s.run_at,
       s.catch_up, s.max_lateness, s.enabled, s.revision, s.effective_from, s.next_plan_at,
       s.plan_error, s.deleted_at
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (job_name, kind, scope_id)
JOIN scopes AS s USING (job_name, kind, scope_id);

-- name: lock_scope
-- One scope under lock, for a backfill. $1 job_name, $2 kind, $3 scope_id
SELECT id, job_name, kind, scope_id, source, cron, time_zone, cadence, run_at, catch_up,
       max_lateness, enabled, revision, effective_from, next_plan_at, plan_error, deleted_at
FROM scopes
WHERE job_name = $1 AND kind = $2 AND scope_id = $3
FOR UPDATE;

-- name: list_scopes
-- A page of a job's scopes. $1 job_name, $2 after kind (or null), $3 after scope_id, $4 limit
SELECT id, job_name, kind, scope_id, source, cron, time_zone, cadence, run_at, catch_up,
       max_lateness, enabled, revision, effective_from, next_plan_at, plan_error, deleted_at
FROM scopes
WHERE job_name = $1 AND ($2::text IS NULL OR (kind, scope_id) > ($2, $3))
ORDER BY kind, scope_id
LIMIT $4;

-- name: lock_due_scopes
-- Takes due scopes off their index, beyond a mark; one without a free slot waits.
-- $1 job_name, $2 limit, $3 plans per scope, $4 mark: next_plan_at, $5 mark: id
SELECT due.id, due.next_plan_at
FROM scopes AS due
WHERE due.job_name = $1 AND due.enabled AND due.deleted_at IS NULL AND due.source <> 'hook'
  AND due.next_plan_at <= (SELECT clock())
  AND (due.next_plan_at, due.id) > ($4::timestamptz, $5::uuid)
  AND (SELECT count(*) FROM executions AS busy
       WHERE busy.state = 'running' AND busy.job_name = due.job_name
         AND busy.scope_kind = due.kind AND busy.scope_id = due.scope_id) < $3
ORDER BY due.next_plan_at, due.id
LIMIT $2
FOR UPDATE SKIP LOCKED;

-- name: due_scopes
-- What planning needs to know of scopes that are locked. A second statement, so that it sees what
-- the holder before us committed. $1 ids
SELECT s.id, s.job_name, s.kind, s.scope_id, s.source, s.cron, s.time_zone, s.cadence, s.run_at,
       s.catch_up, s.max_lateness, s.enabled, s.revision, s.effective_from, s.next_plan_at,
       s.plan_error, s.deleted_at,
       (SELECT e.plan_time
        FROM executions AS e
        WHERE e.job_name = s.job_name AND e.scope_kind = s.kind AND e.scope_id = s.scope_id
        ORDER BY e.plan_time DESC
        LIMIT 1) AS latest_plan,
       (SELECT count(*) FROM executions AS busy
        WHERE busy.state = 'running' AND busy.job_name = s.job_name
          AND busy.scope_kind = s.kind AND busy.scope_id = s.scope_id) AS running,
       (SELECT clock()) AS now
FROM scopes AS s
WHERE s.id = ANY ($1::uuid[]) AND s.enabled AND s.deleted_at IS NULL;

-- name: take_hook_scopes
-- Takes due scopes whose owner plans them, and looks away from them while the owner is asked.
-- $1 job_name, $2 limit, $3 plans per scope, $4 how long
UPDATE scopes AS asked
SET next_plan_at = clock() + $4::interval
WHERE asked.ctid = ANY (ARRAY(
    SELECT due.ctid
    FROM scopes AS due
    WHERE due.job_name = $1 AND due.enabled AND due.deleted_at IS NULL AND due.source = 'hook'
      AND due.next_plan_at <= (SELECT clock())
      AND (SELECT count(*) FROM executions AS busy
           WHERE busy.state = 'running' AND busy.job_name = due.job_name
             AND busy.scope_kind = due.kind AND busy.scope_id = due.scope_id) < $3
    ORDER BY due.next_plan_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING asked.id, asked.kind, asked.scope_id, asked.revision;

-- name: latest_of_scopes
-- The newest occurrence of each scope, for its owner. $1 scope row ids
SELECT s.id, e.plan_time, e.state, e.attempt, e.max_attempts, e.next_retry_at
FROM scopes AS s
CROSS JOIN LATERAL (
    SELECT l.plan_time, l.state, l.attempt, l.max_attempts, l.next_retry_at
    FROM executions AS l
    WHERE l.job_name = s.job_name AND l.scope_kind = s.kind AND l.scope_id = s.scope_id
    ORDER BY l.plan_time DESC
    LIMIT 1) AS e
WHERE s.id = ANY ($1::uuid[]);

-- name: lock_asked_scopes
-- Scopes whose owner answered, unless they were changed while it was asked.
-- $1 ids, $2 revisions
SELECT s.id
FROM unnest($1::uuid[], $2::bigint[]) AS asked (id, revision)
JOIN scopes AS s ON s.id = asked.id AND s.revision = asked.revision
WHERE s.enabled AND s.deleted_at IS NULL
ORDER BY s.id
FOR UPDATE OF s;

-- name: move_scopes
-- Where planning looks next. $1 ids, $2 next_plan_at, $3 plan_error
UPDATE scopes AS s
SET next_plan_at = moved.next_plan_at, plan_error = moved.plan_error
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS moved (id, next_plan_at, plan_error)
WHERE s.id = moved.id;

-- name: scopes_to_check
-- A stretch of all scopes, with what their hint rests on. $1 after id, $2 limit
SELECT s.id, s.job_name, s.kind, s.scope_id, s.source, s.cron, s.time_zone, s.cadence, s.run_at,
       s.catch_up, s.max_lateness, s.enabled, s.revision, s.effective_from, s.next_plan_at,
       s.plan_error, s.deleted_at,
       (SELECT e.plan_time
        FROM executions AS e
        WHERE e.job_name = s.job_name AND e.scope_kind = s.kind AND e.scope_id = s.scope_id
        ORDER BY e.plan_time DESC
        LIMIT 1) AS latest_plan,
       0::bigint AS running,
       (SELECT clock()) AS now
FROM scopes AS s
WHERE s.id = ANY (ARRAY(SELECT next.id FROM scopes AS next WHERE next.id > $1
                        ORDER BY next.id LIMIT $2))
ORDER BY s.id;

-- name: correct_scopes
-- Mends hints that nobody moved since they were read. $1 ids, $2 revisions, $3 as read, $4 as due,
-- $5 plan_error
UPDATE scopes AS s
SET next_plan_at = mended.due, plan_error = mended.plan_error
FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::text[])
     AS mended (id, revision, seen, due, plan_error)
WHERE s.id = mended.id AND s.revision = mended.revision
  AND s.next_plan_at IS NOT DISTINCT FROM mended.seen AND s.enabled AND s.deleted_at IS NULL;

-- name: explain_scopes
-- Scopes by their owner's id, for an explanation. $1 scope_id
SELECT s.id, s.job_name, s.kind, s.scope_id, s.source, s.cron, s.time_zone, s.cadence, s.run_at,
       s.catch_up, s.max_lateness, s.enabled, s.revision, s.effective_from, s.next_plan_at,
       s.plan_error, s.deleted_at, s.updated_at, j.paused_at, j.pause_note,
       (SELECT clock()) AS now
FROM scopes AS s
JOIN jobs AS j ON j.name = s.job_name
WHERE s.scope_id = $1;

-- name: scopes_now
-- The moment from which a scope without one of its own begins to count.
SELECT clock();

-- name: prune_scopes
-- Removes tombstones that are older than any late word of their owner and have no history left.
-- $1 kept for, $2 limit
DELETE FROM scopes
WHERE id = ANY (ARRAY(
    SELECT s.id
    FROM scopes AS s
    WHERE s.deleted_at < (SELECT clock()) - $1::interval
      AND NOT EXISTS (
          SELECT 1 FROM executions AS e
          WHERE e.job_name = s.job_name AND e.scope_kind = s.kind AND e.scope_id = s.scope_id)
    LIMIT $2
    FOR UPDATE SKIP LOCKED));
