-- name: insert_executions
-- Records occurrences; one that is recorded already gives no row, and its claim is somebody else's.
-- $1 ids, $2 job names, $3 scope kinds, $4 scope ids, $5 plan times, $6 states, $7 max attempts,
-- $8 tokens, $9 lease lengths, $10 runner, $11 collapsed, $12 reasons, $13 messages, $14 carriers,
-- $15 how long each may be retried
INSERT INTO executions (id, job_name, scope_kind, scope_id, plan_time, state, attempt, max_attempts,
                        lease_token, stale_after, runner_id, started_at, finished_at,
                        collapsed, reason, message, trace_carrier, retry_until)
SELECT new.id, new.job_name, new.scope_kind, new.scope_id, new.plan_time, new.state,
       CASE new.state WHEN 'running' THEN 1 ELSE 0 END, new.max_attempts,
       new.token, CASE new.state WHEN 'running' THEN clock() + new.lease END,
       $10, CASE new.state WHEN 'running' THEN clock() END,
       CASE new.state WHEN 'running' THEN NULL ELSE clock() END,
       new.collapsed, new.reason, new.message, new.carrier, clock() + new.retried_for
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[],
            $7::integer[], $8::uuid[], $9::interval[], $11::integer[], $12::text[], $13::text[],
            $14::jsonb[], $15::interval[])
     AS new (id, job_name, scope_kind, scope_id, plan_time, state, max_attempts, token, lease,
             collapsed, reason, message, carrier, retried_for)
ON CONFLICT ON CONSTRAINT executions_occurrence DO NOTHING
RETURNING id, started_at, retry_until;

-- name: recorded_executions
-- Which instants of scopes the ledger holds already. $1 job_name, $2 kinds, $3 scope ids,
-- $4 plan times
SELECT asked.kind, asked.scope_id, asked.plan_time
FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS asked (kind, scope_id, plan_time)
WHERE (SELECT true FROM executions AS e
       WHERE e.job_name = $1 AND e.scope_kind = asked.kind AND e.scope_id = asked.scope_id
         AND e.plan_time = asked.plan_time
       LIMIT 1) IS NOT NULL;

-- name: promised_scopes
-- A stretch of the scopes that have promised attempts, by one look each: what waits in them, a
-- thousand after a backfill, is passed over. $1 job_name, $2 after kind, $3 after scope id, $4 limit
WITH RECURSIVE walk AS (
    SELECT $2::text AS scope_kind, $3::text AS scope_id
    UNION ALL
    SELECT following.scope_kind, following.scope_id
    FROM walk AS w
    CROSS JOIN LATERAL (
        SELECT e.scope_kind, e.scope_id
        FROM executions AS e
        WHERE e.job_name = $1 AND e.next_retry_at IS NOT NULL
          AND (e.scope_kind, e.scope_id) > (w.scope_kind, w.scope_id)
        ORDER BY e.scope_kind, e.scope_id
        LIMIT 1) AS following
)
SELECT w.scope_kind, w.scope_id FROM walk AS w OFFSET 1 LIMIT $4;

-- name: longest_due_scopes
-- The scopes of a job's longest due attempts. $1 job_name, $2 how many attempts
SELECT DISTINCT longest.scope_kind, longest.scope_id
FROM (SELECT e.scope_kind, e.scope_id
      FROM executions AS e
      WHERE e.job_name = $1 AND e.next_retry_at <= (SELECT clock())
      ORDER BY e.next_retry_at, e.plan_time
      LIMIT $2) AS longest;

-- name: find_due_retries
-- Occurrences of given scopes whose next attempt is due and has a free slot, with their scopes'
-- rows; no locks yet. As many of a scope as it has slots, so that one scope's crowd hides no other.
-- A missed one gives way to what its scope is due for now: a backfill makes nothing else late.
-- $1 job_name, $2 kinds, $3 scope ids, $4 limit, $5 plans per scope
SELECT next.id, own.id AS scope_row
FROM unnest($2::text[], $3::text[]) AS of (kind, scope_id)
CROSS JOIN LATERAL (
    SELECT s.id, (s.next_plan_at <= (SELECT clock())) IS TRUE AS is_due
    FROM scopes AS s
    WHERE s.job_name = $1 AND s.kind = of.kind AND s.scope_id = of.scope_id
    LIMIT 1) AS own
CROSS JOIN LATERAL (
    SELECT greatest($5 - count(*), 0) AS free
    FROM executions AS busy
    WHERE busy.state = 'running' AND busy.job_name = $1
      AND busy.scope_kind = of.kind AND busy.scope_id = of.scope_id) AS slots
CROSS JOIN LATERAL (
    (SELECT e.id, e.next_retry_at, e.plan_time
     FROM executions AS e
     WHERE e.job_name = $1 AND e.scope_kind = of.kind AND e.scope_id = of.scope_id
       AND e.state = 'failed' AND e.next_retry_at <= (SELECT clock())
     ORDER BY e.next_retry_at, e.plan_time
     LIMIT slots.free)
    UNION ALL
    (SELECT e.id, e.next_retry_at, e.plan_time
     FROM executions AS e
     WHERE e.job_name = $1 AND e.scope_kind = of.kind AND e.scope_id = of.scope_id
       AND e.state = 'skipped' AND e.next_retry_at <= (SELECT clock()) AND NOT own.is_due
     ORDER BY e.next_retry_at, e.plan_time
     LIMIT slots.free)) AS next
ORDER BY next.next_retry_at, next.plan_time
LIMIT $4;

-- name: lock_retry_scopes
-- Scopes of due retries, so that no new plan starts beside one; those at work are left. $1 ids
SELECT id FROM scopes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: lock_due_retries
-- Retries whose scope is locked, unless somebody was first. $1 ids
SELECT id FROM executions
WHERE id = ANY ($1::uuid[]) AND next_retry_at IS NOT NULL
ORDER BY id
FOR UPDATE SKIP LOCKED;

-- name: due_retries
-- What a retry needs to know, read after the lock. $1 ids
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.state, e.retry_until,
       e.trace_carrier,
       s.deleted_at IS NULL AND (e.requested_at IS NOT NULL
           OR s.enabled AND s.effective_from < e.plan_time) AS in_force,
       (SELECT count(*) FROM executions AS busy
        WHERE busy.state = 'running' AND busy.job_name = e.job_name
          AND busy.scope_kind = e.scope_kind AND busy.scope_id = e.scope_id) AS running,
       (SELECT clock()) AS now
FROM executions AS e
JOIN scopes AS s ON s.job_name = e.job_name AND s.kind = e.scope_kind AND s.scope_id = e.scope_id
WHERE e.id = ANY ($1::uuid[]) AND e.next_retry_at IS NOT NULL
ORDER BY e.plan_time;

-- name: claim_retries
-- The next attempt of locked occurrences, under fresh tokens; a missed one is retried from now on.
-- $1 ids, $2 tokens, $3 lease lengths, $4 runner, $5 how long each may be retried
UPDATE executions AS e
SET state = 'running', attempt = e.attempt + 1, next_retry_at = NULL,
    retry_until = CASE e.state WHEN 'skipped' THEN clock() + claim.retried_for
                               ELSE e.retry_until END,
    lease_token = claim.token, stale_after = clock() + claim.lease, runner_id = $4,
    started_at = clock(), finished_at = NULL, reason = '', message = '', updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::interval[], $5::interval[])
     AS claim (id, token, lease, retried_for)
WHERE e.id = claim.id AND e.next_retry_at IS NOT NULL
RETURNING e.id, e.attempt, e.max_attempts, e.give_backs, e.retry_until, e.started_at;

-- name: withdraw_retries
-- Promised attempts that are not made any more.
-- $1 ids, $2 states, $3 reasons, $4 messages
UPDATE executions AS e
SET state = done.state, next_retry_at = NULL, reason = done.reason, message = done.message,
    finished_at = clock(), updated_at = clock()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS done (id, state, reason, message)
WHERE e.id = done.id AND e.next_retry_at IS NOT NULL
RETURNING e.id, e.created_at, e.finished_at;

-- name: renew
-- Keeps leases alive; a row that is not returned is lost. $1 ids, $2 tokens
UPDATE executions AS e
SET stale_after = clock() + j.stale_timeout
FROM unnest($1::uuid[], $2::uuid[]) AS held (id, token), jobs AS j
WHERE e.id = held.id AND e.lease_token = held.token AND j.name = e.job_name
RETURNING e.id;

-- name: settle
-- The end of an attempt. The token alone is the fence: a row that is not returned was taken over.
-- Tells as well whether its scope has something due, which may have waited for its place.
-- $1 ids, $2 tokens, $3 states, $4 attempts given back, $5 next retry times, $6 reasons,
-- $7 messages, $8 results
UPDATE executions AS e
SET state = done.state,
    attempt = e.attempt - done.given_back,
    give_backs = e.give_backs + done.given_back,
    next_retry_at = done.next_retry_at,
    reason = done.reason, message = done.message, result = done.result,
    lease_token = NULL, stale_after = NULL, finished_at = clock(), updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::timestamptz[], $6::text[],
            $7::text[], $8::jsonb[])
     AS done (id, token, state, given_back, next_retry_at, reason, message, result)
WHERE e.id = done.id AND e.lease_token = done.token
RETURNING e.id, e.created_at, e.finished_at,
          (SELECT true FROM executions AS other
           WHERE other.job_name = e.job_name AND other.scope_kind = e.scope_kind
             AND other.scope_id = e.scope_id AND other.state IN ('failed', 'skipped')
             AND other.next_retry_at <= (SELECT clock())
           LIMIT 1) IS NOT NULL
          OR ((SELECT s.next_plan_at FROM scopes AS s
               WHERE s.job_name = e.job_name AND s.kind = e.scope_kind AND s.scope_id = e.scope_id
               LIMIT 1) <= (SELECT clock())) IS TRUE AS awaited;

-- name: executions_now
-- The clock that waits are counted from.
SELECT clock();

-- name: expired
-- Claims whose lease has run out by the database's clock. $1 limit
SELECT e.id, e.lease_token, e.job_name, e.plan_time, e.attempt, e.max_attempts, e.started_at,
       e.retry_until, e.trace_carrier, (SELECT clock()) AS now
FROM executions AS e
WHERE e.state = 'running' AND e.stale_after < (SELECT clock())
ORDER BY e.stale_after
LIMIT $1;

-- name: take_over
-- Ends attempts whose holder is gone; the token and the lease are compared once more.
-- $1 ids, $2 tokens, $3 next retry times
UPDATE executions AS e
SET state = 'failed', next_retry_at = gone.next_retry_at, reason = 'lease_expired',
    message = 'the executor vanished: its lease ran out and was seen so twice',
    lease_token = NULL, stale_after = NULL, finished_at = clock(), updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS gone (id, token, next_retry_at)
WHERE e.id = gone.id AND e.lease_token = gone.token AND e.stale_after < (SELECT clock())
RETURNING e.id, e.created_at, e.finished_at;
