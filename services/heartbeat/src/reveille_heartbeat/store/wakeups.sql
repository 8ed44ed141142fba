-- name: insert_wakeups
-- Every wish leaves a row; whoever has a key has taken it before.
-- $1 ids, $2 workspaces, $3 agents, $4 sources, $5 wake reasons, $6 titles, $7 issues,
-- $8 states, $9 reasons, $10 messages, $11 callers, $12 idempotency keys, $13 occurrence keys,
-- $14 originators, $15 accountable users, $16 responsible users, $17 autopilot runs,
-- $18 joined wakeups, $19 runs, $20 carriers, $21 whether each is settled at birth, $22 squads,
-- $23 kinds of requesters, $24 requesters, $25 task keys, $26 comments (as array literals),
-- $27 whether each begins a fresh session, $28 contexts, $29 how many joined each in its batch,
-- $30 bytes that the run of each is told
INSERT INTO wakeup_requests (wakeup_id, workspace_id, agent_id, source, wake_reason, title,
    issue_id, state, reason, message, caller, idempotency_key, occurrence_key, originator_user_id,
    accountable_user_id, responsible_user_id, autopilot_run_id, joined_wakeup_id, run_id, attempts,
    trace_carrier, finished_at, squad_id, requester_kind, requester_id, task_key, comment_ids,
    fresh_session, context, coalesced_count, told_bytes)
SELECT w.wakeup_id, w.workspace_id, w.agent_id, w.source, w.wake_reason, w.title, w.issue_id,
    w.state, w.reason, w.message, w.caller, w.idempotency_key, w.occurrence_key,
    w.originator_user_id, w.accountable_user_id, w.responsible_user_id, w.autopilot_run_id,
    w.joined_wakeup_id, w.run_id, (w.run_id IS NOT NULL)::integer, w.trace_carrier,
    CASE WHEN w.settled THEN clock() END, w.squad_id, w.requester_kind, w.requester_id, w.task_key,
    w.comment_ids::uuid[], w.fresh_session, w.context,
    w.coalesced_count, w.told_bytes
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::uuid[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], $17::text[], $18::uuid[], $19::uuid[], $20::jsonb[],
    $21::boolean[], $22::uuid[], $23::text[], $24::text[], $25::text[], $26::text[],
    $27::boolean[], $28::jsonb[], $29::integer[], $30::bigint[])
    AS w (wakeup_id, workspace_id, agent_id, source, wake_reason, title, issue_id, state, reason,
        message, caller, idempotency_key, occurrence_key, originator_user_id, accountable_user_id,
        responsible_user_id, autopilot_run_id, joined_wakeup_id, run_id, trace_carrier, settled,
        squad_id, requester_kind, requester_id, task_key, comment_ids, fresh_session, context,
        coalesced_count, told_bytes);

-- name: insert_payloads
-- What the agents get to read. $1 wakeups, $2 prompts, $3 content types, $4 bodies,
-- $5 deliveries, $6 facts
INSERT INTO wakeup_payloads (wakeup_id, prompt, content_type, body, delivery_id, facts)
SELECT p.wakeup_id, p.prompt, p.content_type, p.body, p.delivery_id, p.facts
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::jsonb[])
    AS p (wakeup_id, prompt, content_type, body, delivery_id, facts);

-- name: find_payloads
-- What the agent gets to read. $1 wakeups
SELECT wakeup_id, prompt, content_type, body, delivery_id, facts
FROM wakeup_payloads
WHERE wakeup_id = ANY($1::uuid[]);

-- name: find_wakeups
-- Wakeups by id. $1 ids
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE wakeup_id = ANY($1::uuid[]);

-- name: find_by_idempotency_key
-- What another caller's keys have made. $1 workspaces, $2 callers, $3 keys
SELECT w.wakeup_id, w.workspace_id, w.caller, w.idempotency_key
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS k (workspace_id, caller, idempotency_key)
CROSS JOIN LATERAL (
    SELECT wakeup_id, workspace_id, caller, idempotency_key FROM wakeup_requests
    WHERE workspace_id = k.workspace_id AND caller = k.caller
        AND idempotency_key = k.idempotency_key
    LIMIT 1
) w;

-- name: list_wakeups
-- A page of a workspace's wakeups, newest first. $1 workspace, $2 agent (null: all),
-- $3 states (null: all), $4 id before which it starts (null: newest), $5 limit,
-- $6 issue (null: all), $7 reasons (null: all)
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE workspace_id = $1
    AND ($2::uuid IS NULL OR agent_id = $2)
    AND ($3::text[] IS NULL OR state = ANY($3))
    AND ($4::uuid IS NULL OR wakeup_id < $4)
    AND ($6::uuid IS NULL OR issue_id = $6)
    AND ($7::text[] IS NULL OR reason = ANY($7))
ORDER BY wakeup_id DESC
LIMIT $5;

-- name: find_joined
-- The newest of the wakes that one carries with it. $1 wakeup, $2 limit
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE joined_wakeup_id = $1 AND state = 'coalesced'
ORDER BY created_at DESC, wakeup_id DESC
LIMIT $2;

-- name: lock_wakeups
-- The level between issues and runs. $1 ids
SELECT wakeup_id, state, occurrence_key, trace_carrier FROM wakeup_requests
WHERE wakeup_id = ANY($1::uuid[])
ORDER BY wakeup_id
FOR NO KEY UPDATE;

-- name: claim_wakeups
-- The attempt begins; a repeat leaves the wakeup claimed as it was. $1 ids
UPDATE wakeup_requests
SET state = 'claimed', claimed_at = coalesce(claimed_at, clock())
WHERE wakeup_id = ANY($1::uuid[]) AND state = 'queued';

-- name: settle_wakeup
-- The end of a wakeup, from a state that leads there; no row means that it has ended already.
-- $1 id, $2 states it may have, $3 state it gets, $4 reason, $5 message
UPDATE wakeup_requests
SET state = $3, reason = $4, message = $5, finished_at = clock()
WHERE wakeup_id = $1 AND state = ANY($2::text[])
RETURNING wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context;

-- name: settle_joined
-- What joined a wakeup ends with it. $1 the one joined, $2 state, $3 reason, $4 message
UPDATE wakeup_requests
SET state = $2, reason = $3, message = $4, finished_at = clock()
WHERE joined_wakeup_id = $1 AND state = 'coalesced'
RETURNING wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context;

-- name: request_cancel
-- No further attempt is made for it. $1 id
UPDATE wakeup_requests SET cancel_requested_at = coalesce(cancel_requested_at, clock())
WHERE wakeup_id = $1 AND finished_at IS NULL;

-- name: oldest_deferred
-- Whose turn it is on issues that are free, and whose locks are held. $1 issues
SELECT w.wakeup_id, w.workspace_id, w.agent_id, w.source, w.wake_reason, w.title, w.state, w.reason,
    w.message, w.issue_id, w.run_id, w.occurrence_key, w.joined_wakeup_id, w.originator_user_id,
    w.accountable_user_id, w.responsible_user_id, w.autopilot_run_id, w.attempts,
    w.cancel_requested_at IS NOT NULL AS cancel_requested, w.trace_carrier, w.created_at,
    w.claimed_at, w.finished_at, w.squad_id, w.requester_kind, w.requester_id, w.task_key,
    w.comment_ids, w.fresh_session, w.coalesced_count, w.context
FROM unnest($1::uuid[]) AS i (issue_id)
CROSS JOIN LATERAL (
    SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message,
        issue_id, run_id, occurrence_key, joined_wakeup_id, originator_user_id,
        accountable_user_id, responsible_user_id, autopilot_run_id, attempts, cancel_requested_at,
        trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind, requester_id,
        task_key, comment_ids, fresh_session, coalesced_count, context
    FROM wakeup_requests
    WHERE issue_id = i.issue_id AND state = 'deferred'
    ORDER BY created_at, wakeup_id
    LIMIT 1
) w;

-- name: promote_deferred
-- The same rows, now in the queue. $1 ids, $2 runs, $3 contexts
UPDATE wakeup_requests w
SET state = 'queued', reason = '', message = '', run_id = p.run_id, attempts = 1,
    context = p.context
FROM unnest($1::uuid[], $2::uuid[], $3::jsonb[]) AS p (wakeup_id, run_id, context)
WHERE w.wakeup_id = p.wakeup_id AND w.state = 'deferred';

-- name: stranded_issues
-- Issues with a deferred wake and no run that would promote it, in order. $1 after, $2 limit
SELECT DISTINCT w.issue_id FROM wakeup_requests w
WHERE w.state = 'deferred' AND w.issue_id > $1
    AND NOT EXISTS (
        SELECT FROM runs r
        WHERE r.issue_id = w.issue_id AND (r.state IN ('queued', 'scheduled_retry') OR r.occupied)
    )
ORDER BY w.issue_id
LIMIT $2;

-- name: wakeups_of_issue
-- Everything that was asked for on an issue, newest first. $1 issue, $2 limit
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE issue_id = $1
ORDER BY wakeup_id DESC
LIMIT $2;

-- name: unsettled_wakeups_of_issue
-- What is under way on an issue, and what it takes with it when it is cancelled. $1 issue
SELECT wakeup_id FROM wakeup_requests
WHERE issue_id = $1 AND finished_at IS NULL AND state <> 'coalesced';

-- name: wakeups_of_agent
-- The newest wishes for an agent. $1 agent, $2 limit
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE agent_id = $1
ORDER BY wakeup_id DESC
LIMIT $2;

-- name: waiting_wakeups_of_issue
-- The wakes about an issue that nobody works on yet. $1 issue
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context
FROM wakeup_requests
WHERE issue_id = $1 AND finished_at IS NULL AND state <> 'coalesced'
    AND NOT EXISTS (SELECT FROM runs r WHERE r.run_id = wakeup_requests.run_id AND r.occupied);
