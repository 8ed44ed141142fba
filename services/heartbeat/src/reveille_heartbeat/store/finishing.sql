-- name: lock_wakeups_of_runs
-- Wakeups whose attempts end, locked. $1 ids
SELECT wakeup_id, cancel_requested_at IS NOT NULL AS cancel_requested FROM wakeup_requests
WHERE wakeup_id = ANY($1::uuid[])
ORDER BY wakeup_id
FOR NO KEY UPDATE;

-- name: lock_ending_runs
-- Attempts that end, as they stand, locked. $1 ids
SELECT run_id, state, reason, message, failure_class, retry_not_before, comment_status,
    left_progress, lease_token, finished_at, follow_up_done_at, event_seq
FROM runs
WHERE run_id = ANY($1::uuid[])
ORDER BY run_id
FOR NO KEY UPDATE;

-- name: end_runs
-- The one terminal write of attempts by their holder, for a batch; what needs no follow-up of its own
-- gives slot and lease back at once. A run that is missing in the answer is not held any more, or
-- somebody ended it before. $1 runs, $2 tokens, $3 states, $4 reasons, $5 messages, $6 exit codes,
-- $7 summaries, $8 results, $9 failure classes, $10 providers' times, $11 comment states,
-- $12 whether each left progress, $13 numbers of the last event, $14 whether each is over, $15 seconds
-- since their agents were last heard of (null: as it is written)
UPDATE runs r
SET state = e.state, reason = e.reason, message = e.message, exit_code = e.exit_code,
    summary = e.summary, result = e.result, failure_class = e.failure_class,
    retry_not_before = e.retry_not_before, comment_status = e.comment_status,
    left_progress = e.left_progress, event_seq = e.event_seq, finished_at = clock(),
    occupied = NOT e.is_over,
    lease_token = CASE WHEN e.is_over THEN NULL ELSE r.lease_token END,
    lease_expires_at = CASE WHEN e.is_over THEN NULL ELSE r.lease_expires_at END,
    follow_up_done_at = CASE WHEN e.is_over THEN clock() END,
    last_output_at = greatest(r.last_output_at, clock() - make_interval(secs => e.silence))
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
    $8::bytea[], $9::text[], $10::timestamptz[], $11::text[], $12::boolean[], $13::integer[],
    $14::boolean[], $15::double precision[])
    AS e (run_id, token, state, reason, message, exit_code, summary, result, failure_class,
        retry_not_before, comment_status, left_progress, event_seq, is_over, silence)
WHERE r.run_id = ANY($1::uuid[]) AND r.run_id = e.run_id AND r.lease_token = e.token
    AND r.finished_at IS NULL
RETURNING r.run_id, r.finished_at;

-- name: note_late_results
-- Somebody ended these runs before their holder; it says so. $1 runs, $2 numbers of the last event
UPDATE runs r SET event_seq = e.event_seq
FROM unnest($1::uuid[], $2::integer[]) AS e (run_id, event_seq)
WHERE r.run_id = ANY($1::uuid[]) AND r.run_id = e.run_id;

-- name: finish_runs
-- Slot, issue and lease of ended runs are given back. A run that is missing in the answer is not held
-- any more. $1 runs, $2 tokens, $3 comment states, $4 numbers of the last event
UPDATE runs r
SET occupied = false, lease_token = NULL, lease_expires_at = NULL, follow_up_done_at = clock(),
    comment_status = e.comment_status, event_seq = e.event_seq
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[])
    AS e (run_id, token, comment_status, event_seq)
WHERE r.run_id = ANY($1::uuid[]) AND r.run_id = e.run_id AND r.lease_token = e.token
    AND r.finished_at IS NOT NULL
RETURNING r.run_id;

-- name: results_of_runs
-- What attempts answered, for the event that settles their wakeups. $1 runs
SELECT run_id, summary, result FROM runs WHERE run_id = ANY($1::uuid[]);

-- name: traces_of_runs
-- What attempts have left for others to see: comments, parts of their issue, approvals asked for.
-- $1 runs, $2 their issues
SELECT e.run_id,
    EXISTS (SELECT FROM issue_comments c WHERE c.run_id = e.run_id) AS commented,
    EXISTS (
        SELECT FROM issues s WHERE s.parent_issue_id = e.issue_id AND s.origin_id = e.run_id::text
    ) OR EXISTS (
        SELECT FROM approvals a
        WHERE a.issue_id = e.issue_id AND a.requested_by_run_id = e.run_id
    ) AS left_more
FROM unnest($1::uuid[], $2::uuid[]) AS e (run_id, issue_id);

-- name: leave_summaries
-- What attempts said at their end becomes their comment. $1 comments, $2 issues, $3 workspaces,
-- $4 agents, $5 runs, $6 bodies
INSERT INTO issue_comments (comment_id, issue_id, workspace_id, author_kind, author_id, run_id, body)
SELECT c.comment_id, c.issue_id, c.workspace_id, 'agent', c.agent_id, c.run_id, c.body
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[])
    AS c (comment_id, issue_id, workspace_id, agent_id, run_id, body);

-- name: comments_awaited
-- The issues on which somebody's comment waits for an agent. $1 issues
SELECT DISTINCT issue_id FROM wakeup_requests
WHERE issue_id = ANY($1::uuid[]) AND state = 'deferred' AND comment_ids <> '{}';

-- name: attempts_of_wakeups
-- The ledger of repeats: the attempts themselves, by why each was made. $1 wakeups
SELECT wakeup_id, retry_reason, count(*) AS attempts FROM runs
WHERE wakeup_id = ANY($1::uuid[])
GROUP BY wakeup_id, retry_reason;

-- name: settle_claimed
-- The end of wakeups whose attempts have ended. $1 ids, $2 states, $3 reasons, $4 messages
UPDATE wakeup_requests w
SET state = e.state, reason = e.reason, message = e.message, finished_at = clock()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS e (wakeup_id, state, reason, message)
WHERE w.wakeup_id = ANY($1::uuid[]) AND w.wakeup_id = e.wakeup_id AND w.state = 'claimed'
RETURNING w.wakeup_id;

-- name: settle_all_joined
-- What joined these wakeups ends with them. $1 the ones joined, $2 states, $3 reasons, $4 messages
UPDATE wakeup_requests w
SET state = e.state, reason = e.reason, message = e.message, finished_at = clock()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS e (wakeup_id, state, reason, message)
WHERE w.joined_wakeup_id = ANY($1::uuid[]) AND w.joined_wakeup_id = e.wakeup_id
    AND w.state = 'coalesced'
RETURNING w.wakeup_id, w.workspace_id, w.agent_id, w.source, w.wake_reason, w.title, w.state, w.reason,
    w.message, w.issue_id, w.run_id, w.occurrence_key, w.joined_wakeup_id, w.originator_user_id,
    w.accountable_user_id, w.responsible_user_id, w.autopilot_run_id, w.attempts,
    w.cancel_requested_at IS NOT NULL AS cancel_requested, w.trace_carrier, w.created_at,
    w.claimed_at, w.finished_at, w.squad_id, w.requester_kind, w.requester_id, w.task_key,
    w.comment_ids, w.fresh_session, w.coalesced_count, w.context;

-- name: queue_next_attempts
-- Successors become the newest attempts of wakeups that stay claimed. $1 wakeups, $2 runs
UPDATE wakeup_requests w SET run_id = n.run_id, attempts = w.attempts + 1
FROM unnest($1::uuid[], $2::uuid[]) AS n (wakeup_id, run_id)
WHERE w.wakeup_id = ANY($1::uuid[]) AND w.wakeup_id = n.wakeup_id AND w.state = 'claimed';

-- name: pass_execution
-- Issues go from runs that are over to their successors, or are free; only what a run holds.
-- $1 issues, $2 runs, $3 successors (null: free)
UPDATE issues i
SET execution_run_id = CASE WHEN i.execution_run_id = p.run_id THEN p.successor_id
        ELSE i.execution_run_id END,
    execution_locked_at = CASE WHEN i.execution_run_id = p.run_id AND p.successor_id IS NULL
        THEN NULL ELSE i.execution_locked_at END,
    checkout_run_id = CASE WHEN i.checkout_run_id = p.run_id THEN p.successor_id
        ELSE i.checkout_run_id END,
    revision = i.revision + 1, updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS p (issue_id, run_id, successor_id)
WHERE i.issue_id = ANY($1::uuid[]) AND i.issue_id = p.issue_id
    AND p.run_id IN (i.execution_run_id, i.checkout_run_id);

-- name: book_costs
-- What attempts used: reports are cumulative, so the larger numbers of a day count and a repeated
-- report changes nothing. $1 runs, $2 workspaces, $3 agents, $4 issues, $5 providers, $6 models,
-- $7 input tokens, $8 cached ones, $9 output tokens, $10 cents
INSERT INTO cost_events (run_id, workspace_id, agent_id, issue_id, provider, model, day,
    input_tokens, cached_input_tokens, output_tokens, cost_cents)
SELECT u.run_id, u.workspace_id, u.agent_id, u.issue_id, u.provider, u.model,
    (clock() AT TIME ZONE 'UTC')::date, u.input_tokens, u.cached_input_tokens, u.output_tokens,
    u.cost_cents
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::numeric[])
    AS u (run_id, workspace_id, agent_id, issue_id, provider, model, input_tokens,
        cached_input_tokens, output_tokens, cost_cents)
ORDER BY u.run_id, u.provider, u.model
ON CONFLICT (run_id, provider, model, day) DO UPDATE
SET input_tokens = greatest(cost_events.input_tokens, excluded.input_tokens),
    cached_input_tokens = greatest(cost_events.cached_input_tokens, excluded.cached_input_tokens),
    output_tokens = greatest(cost_events.output_tokens, excluded.output_tokens),
    cost_cents = greatest(cost_events.cost_cents, excluded.cost_cents),
    updated_at = clock();
