-- name: add_scopes
-- So many scopes of one rule, due first at one moment. $1 job, $2 how many, $3 cron, $4 due
INSERT INTO scheduler.scopes (id, job_name, kind, scope_id, source, cron, time_zone, enabled,
                              revision, effective_from, next_plan_at)
SELECT uuidv7(), $1, 'bench', 'scope-' || n, 'cron', $3, 'UTC', true, 1,
       $4::timestamptz - interval '1 minute', $4
FROM generate_series(1, $2::integer) AS n;

-- name: add_history
-- So many rows of a ledger that ended long ago, with ids in order of time as the service makes them.
-- $1 job, $2 how many, $3 over how many scopes
INSERT INTO scheduler.executions (id, job_name, scope_kind, scope_id, plan_time, state, attempt,
                                  max_attempts, retry_until, started_at, finished_at)
SELECT uuidv7(), $1, 'bench', 'scope-' || (n % $3::integer + 1),
       timestamptz '2020-01-01' + n * interval '1 second', 'success', 1, 3, '2020-01-02',
       '2020-01-01', timestamptz '2020-01-01' + n * interval '1 second'
FROM generate_series(1, $2::integer) AS n;

-- name: ended
-- How many occurrences of a job have ended. $1 job
SELECT count(*) FROM scheduler.executions WHERE job_name = $1 AND state <> 'running';

-- name: outcome
-- What became of them, and when. $1 job
SELECT e.scope_id, e.state, e.attempt,
       extract(epoch FROM e.started_at - e.plan_time)::float8 AS lateness,
       extract(epoch FROM e.finished_at - e.plan_time)::float8 AS settled_after
FROM scheduler.executions AS e
WHERE e.job_name = $1;

-- name: repeated_effects
-- Plans that had more than one effect, and how many effects there are.
SELECT count(*) AS effects, count(*) FILTER (WHERE times > 1) AS repeated FROM public.effects;

-- name: take_back
-- Forgets a measured round, so that the same scopes can be claimed again. $1 job
DELETE FROM scheduler.executions WHERE job_name = $1 AND started_at > '2021-01-01';

-- name: due_again
-- Makes the scopes due again. $1 job, $2 when
UPDATE scheduler.scopes SET next_plan_at = $2 WHERE job_name = $1;

-- name: bare_claim
-- The limit: the inserts of a claim. $1 ids, $2 scope ids, $3 tokens, $4 plan time
INSERT INTO scheduler.executions (id, job_name, scope_kind, scope_id, plan_time, state, attempt,
                                  max_attempts, lease_token, stale_after, started_at, retry_until)
SELECT new.id, 'bench', 'bench', new.scope_id, $4::timestamptz, 'running', 1, 3, new.token,
       $4::timestamptz + interval '5 minutes', $4, $4::timestamptz + interval '1 hour'
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS new (id, scope_id, token);

-- name: bare_move
-- The limit: the cursors of a claim. $1 scope ids, $2 when
UPDATE scheduler.scopes SET next_plan_at = $2
WHERE job_name = 'bench' AND kind = 'bench' AND scope_id = ANY ($1::text[]);

-- name: bare_settle
-- The limit: the ends. $1 ids, $2 when
UPDATE scheduler.executions
SET state = 'success', lease_token = NULL, stale_after = NULL, finished_at = $2,
    result = '{"handled": true}'
WHERE id = ANY ($1::uuid[]);
