-- name: get_runs
-- Runs as they stand, without their payloads. $1 ids
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, wakeup_id, issue_id, result, payload_ready,
    payload_bytes, attempts,
    next_attempt_at, dispatch_deadline_at, cancel_requested_at, cancel_requested_by,
    request_fingerprint, trace_carrier, created_at, finished_at
FROM runs
WHERE id = ANY($1::uuid[]);

-- name: brief_runs
-- The same without texts, for watchers. $1 ids
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, '' AS prompt,
    originator_user_id, accountable_user_id, attribution_source, reason, message, wakeup_id,
    issue_id, NULL::bytea AS result, payload_ready, payload_bytes, attempts, next_attempt_at,
    dispatch_deadline_at, cancel_requested_at, cancel_requested_by, request_fingerprint,
    trace_carrier, created_at, finished_at
FROM runs
WHERE id = ANY($1::uuid[]);

-- name: lock_runs
-- The same, held until the transaction ends. $1 ids
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, wakeup_id, issue_id, result, payload_ready,
    payload_bytes, attempts,
    next_attempt_at, dispatch_deadline_at, cancel_requested_at, cancel_requested_by,
    request_fingerprint, trace_carrier, created_at, finished_at
FROM runs
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: run_ids_by_key
-- From the keys that events carry to the rows to lock. $1 occurrence_keys
SELECT id, occurrence_key FROM runs WHERE occurrence_key = ANY($1::text[]);

-- name: run_ids_without_body
-- The open runs of deliveries that wait for their bodies. $1 delivery_ids
SELECT id FROM runs
WHERE delivery_id = ANY($1::uuid[]) AND finished_at IS NULL AND NOT payload_ready;

-- name: await_bodies
-- Has runs wait for their bodies as long as if they were admitted now. One whose time is over is
-- left to the sweep, which may be giving it up. $1 ids, $2 how long
UPDATE runs
SET dispatch_deadline_at = clock() + $2::interval, next_attempt_at = clock() + $2::interval
WHERE id = ANY(ARRAY(
        SELECT id FROM runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
    ))
    AND state = 'pending' AND NOT payload_ready AND cancel_requested_at IS NULL
    AND dispatch_deadline_at > (SELECT clock())
RETURNING id;

-- name: write_runs
-- Applies steps to runs that are locked and were read in `state_before`. A terminal run keeps its
-- state and its end; links and a result may still be filled in.
-- $1 ids, $2 state_before, $3 state, $4 reason, $5 message, $6 wakeup_id, $7 issue_id, $8 result,
-- $9 in how many seconds the sweep looks again, null to leave that as it is, $10 given up
UPDATE runs r
SET state = i.state, reason = i.reason, message = i.message, wakeup_id = i.wakeup_id,
    issue_id = i.issue_id, result = i.result,
    finished_at = CASE
        WHEN i.state IN ('completed', 'failed', 'skipped', 'cancelled')
            THEN coalesce(r.finished_at, clock())
    END,
    next_attempt_at = CASE
        WHEN i.state NOT IN ('completed', 'failed', 'skipped', 'cancelled')
            THEN coalesce(clock() + make_interval(secs => i.look_again), r.next_attempt_at)
    END,
    given_up_at = CASE WHEN i.given_up THEN clock() ELSE r.given_up_at END,
    given_up_planned_at = CASE WHEN i.given_up THEN r.planned_at ELSE r.given_up_planned_at END,
    planned_at = CASE WHEN i.given_up THEN NULL ELSE r.planned_at END,
    given_up_delivery_id = CASE
        WHEN i.given_up THEN r.delivery_id ELSE r.given_up_delivery_id
    END,
    delivery_id = CASE WHEN i.given_up THEN NULL ELSE r.delivery_id END
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::uuid[],
    $8::bytea[], $9::float8[], $10::boolean[]
) AS i (
    id, state_before, state, reason, message, wakeup_id, issue_id, result, look_again, given_up
)
WHERE r.id = i.id AND r.state = i.state_before
RETURNING r.id, r.finished_at;

-- name: postpone_runs
-- Nothing could be decided: the sweep tries again, soon if somebody waits for a cancellation. A run
-- with its outcome is left alone. $1 ids, $2 in how many seconds, $3 at most, if to be cancelled
UPDATE runs r
SET attempts = r.attempts + CASE WHEN r.state = 'pending' THEN 1 ELSE 0 END,
    next_attempt_at = clock() + make_interval(
        secs => CASE WHEN r.cancel_requested_at IS NULL THEN i.delay ELSE least(i.delay, $3) END
    )
FROM unnest($1::uuid[], $2::float8[]) AS i (id, delay)
WHERE r.id = i.id AND r.finished_at IS NULL
RETURNING r.id;

-- name: claim_due_runs
-- The sweep's work, each run to one replica for a while: it is looked at again if that one dies.
-- $1 limit, $2 for how many seconds
UPDATE runs
SET next_attempt_at = clock() + make_interval(secs => $2)
WHERE ctid = ANY(ARRAY(
        SELECT ctid
        FROM runs
        WHERE next_attempt_at <= (SELECT clock())
        ORDER BY next_attempt_at
        LIMIT $1
        FOR UPDATE SKIP LOCKED
    ))
    AND next_attempt_at <= (SELECT clock())
RETURNING id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key, planned_at,
    delivery_id, given_up_at, execution_mode, agent_id, squad_id, project_id, quota_period_start,
    rule_version_id, title, prompt, originator_user_id, accountable_user_id, attribution_source, reason, message, wakeup_id,
    issue_id, result, payload_ready, payload_bytes, attempts, next_attempt_at, dispatch_deadline_at,
    cancel_requested_at, cancel_requested_by, request_fingerprint, trace_carrier, created_at,
    finished_at, clock() AS now;

-- name: next_due_in
-- When the sweep has something to do next, in seconds; null when nothing is open.
SELECT extract(epoch FROM next_attempt_at - (SELECT clock()))::float8
FROM runs
WHERE next_attempt_at IS NOT NULL
ORDER BY next_attempt_at
LIMIT 1;

-- name: load_payloads
-- What goes downstream with a run, apart from its own columns. $1 ids
SELECT id, content_type, payload, payload_facts, payload_omitted
FROM runs
WHERE id = ANY($1::uuid[]);

-- name: request_cancel
-- Remembers the wish; a run that has its outcome keeps it. $1 id, $2 who asked
UPDATE runs
SET cancel_requested_at = coalesce(cancel_requested_at, clock()),
    cancel_requested_by = coalesce(cancel_requested_by, $2),
    next_attempt_at = clock()
WHERE id = $1 AND finished_at IS NULL
RETURNING id;

-- name: overdue
-- Those that are given up, or are about to be; it stays so while they are pending. $1 ids
SELECT id
FROM runs
WHERE id = ANY($1::uuid[]) AND state = 'pending' AND cancel_requested_at IS NULL
    AND dispatch_deadline_at <= (SELECT clock());

-- name: check_all_open
-- The feed's place was lost: every open run is compared with what it made, pending ones too,
-- except those that still wait for their body.
UPDATE runs
SET next_attempt_at = clock()
WHERE next_attempt_at > (SELECT clock()) AND (state <> 'pending' OR payload_ready);

-- name: open_runs
-- The runs without an outcome, for a watcher's snapshot.
-- $1 workspace_id, $2 autopilot_id or null, $3 trigger_id or null, $4 after id, $5 limit
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, '' AS prompt,
    originator_user_id, accountable_user_id, attribution_source, reason, message, wakeup_id,
    issue_id, NULL::bytea AS result, payload_ready, payload_bytes, attempts, next_attempt_at,
    dispatch_deadline_at, cancel_requested_at, cancel_requested_by, request_fingerprint,
    trace_carrier, created_at, finished_at
FROM runs
WHERE workspace_id = $1 AND finished_at IS NULL AND ($2::uuid IS NULL OR autopilot_id = $2)
    AND ($3::uuid IS NULL OR trigger_id = $3) AND id > $4
ORDER BY id
LIMIT $5;

-- name: list_runs
-- Newest first, without texts. $1 workspace_id, $2 autopilot_id or null, $3 trigger_id or null,
-- $4 states or null, $5 before id or null, $6 limit
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, '' AS prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, wakeup_id, issue_id,
    CASE WHEN result IS NOT NULL THEN ''::bytea END AS result,
    payload_ready, payload_bytes, attempts, next_attempt_at, dispatch_deadline_at,
    cancel_requested_at, cancel_requested_by, request_fingerprint, trace_carrier, created_at, finished_at
FROM runs
WHERE workspace_id = $1 AND ($2::uuid IS NULL OR autopilot_id = $2)
    AND ($3::uuid IS NULL OR trigger_id = $3)
    AND ($4::text[] IS NULL OR state = ANY($4))
    AND ($5::uuid IS NULL OR id < $5)
ORDER BY id DESC
LIMIT $6;

-- name: find_runs
-- The runs an id leads to, newest first, for Explain: a run, a delivery, a wakeup or an issue.
-- Of a result only that there is one. $1 id
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, '' AS prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, wakeup_id, issue_id,
    CASE WHEN result IS NOT NULL THEN ''::bytea END AS result,
    payload_ready, payload_bytes, attempts, next_attempt_at, dispatch_deadline_at,
    cancel_requested_at, cancel_requested_by, request_fingerprint, trace_carrier, created_at, finished_at
FROM runs
WHERE id = $1 OR delivery_id = $1 OR wakeup_id = $1 OR issue_id = $1
ORDER BY id DESC
LIMIT 10;
