-- name: waiting_workspaces
-- Workspaces with queued runs, found by hopping over the claim index. $1 limit
WITH RECURSIVE waiting (workspace_id) AS (
    (SELECT workspace_id FROM runs WHERE state = 'queued' ORDER BY workspace_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT r.workspace_id FROM runs r
        WHERE r.state = 'queued' AND r.workspace_id > w.workspace_id
        ORDER BY r.workspace_id LIMIT 1
    )
    FROM waiting w
    WHERE w.workspace_id IS NOT NULL
)
SELECT workspace_id FROM waiting WHERE workspace_id IS NOT NULL LIMIT $1;

-- name: claim_candidates
-- The best queued runs of every agent that has a free slot and a runtime, each agent reached by one
-- hop of the claim index, so that neither a full agent nor a busy issue hides the others. With them
-- the snapshot that was looked at: what else was queued then is to be seen from the ledger. What is
-- at work is read once: however old the statistics are, nothing is looked up in it row by row.
-- $1 workspace, $2 limit
WITH RECURSIVE waiting (agent_id) AS (
    (
        SELECT agent_id FROM runs
        WHERE workspace_id = $1 AND state = 'queued' ORDER BY agent_id LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT r.agent_id FROM runs r
        WHERE r.workspace_id = $1 AND r.state = 'queued' AND r.agent_id > w.agent_id
        ORDER BY r.agent_id LIMIT 1
    )
    FROM waiting w
    WHERE w.agent_id IS NOT NULL
),
held AS MATERIALIZED (
    SELECT agent_id, issue_id FROM runs WHERE workspace_id = $1 AND occupied
),
free AS MATERIALIZED (
    SELECT w.agent_id, a.max_concurrent_runs - (
        SELECT count(*) FROM held h WHERE h.agent_id = w.agent_id
    ) AS slots
    FROM waiting w
    JOIN agents a ON a.agent_id = w.agent_id
    JOIN runtimes t ON t.runtime_id = a.runtime_id
    WHERE t.presence_expires_at > (SELECT clock()) AND t.unusable_reason = ''
)
SELECT c.run_id, c.wakeup_id, c.agent_id, c.issue_id, c.ready_rank, c.priority, c.created_at,
    c.retry_of_run_id, c.retry_reason, pg_current_snapshot()::text AS snapshot
FROM free f
CROSS JOIN LATERAL (
    SELECT r.run_id, r.wakeup_id, r.agent_id, r.issue_id, r.ready_rank, r.priority, r.created_at,
        r.retry_of_run_id, r.retry_reason
    FROM runs r
    WHERE r.workspace_id = $1 AND r.agent_id = f.agent_id AND r.state = 'queued'
        AND (
            r.issue_id IS NULL
            OR r.issue_id NOT IN (SELECT h.issue_id FROM held h WHERE h.issue_id IS NOT NULL)
        )
    ORDER BY r.ready_rank, r.priority, r.created_at, r.run_id
    LIMIT f.slots
) c
WHERE f.slots > 0
ORDER BY c.ready_rank, c.priority, c.created_at, c.run_id
LIMIT $2;

-- name: lock_claim_gate
-- Whoever claims under a limit over all workspaces does it alone, and takes this lock first.
SELECT only_row FROM claim_gate FOR UPDATE;

-- name: limit_claim_waits
-- Until the end of this transaction: a row that somebody holds for longer, frozen or with much to
-- write, keeps this workspace's runs waiting and not those of the workspaces that come after it.
-- Whoever enqueues or ends runs holds theirs for a fraction of that.
SELECT set_config('lock_timeout', '1s', true);

-- name: claim_agents
-- Agents whose slots are about to be counted, locked. $1 ids
SELECT a.agent_id, a.workspace_id, a.name, a.adapter, a.adapter_config, a.owner_user_id,
    a.invocation_rule, a.invocation_user_ids, a.max_concurrent_runs, a.run_timeout,
    a.idle_timeout, a.created_at, a.runtime_id,
    coalesce(t.presence_expires_at > (SELECT clock()), false) AS runtime_present,
    coalesce(t.unusable_reason, '') AS runtime_unusable_reason, a.state, a.pause_reason,
    a.manager_agent_id, a.timer_enabled, a.timer_interval, a.last_timer_fired_at,
    a.skip_timer_without_work, a.wake_on_demand, a.max_daily_runs, a.max_daily_cost_cents,
    a.cooldown, a.start_limit, a.max_turn_continuations, a.max_turn_delay, a.revision,
    a.updated_at
FROM agents a LEFT JOIN runtimes t ON t.runtime_id = a.runtime_id
WHERE a.agent_id = ANY($1::uuid[])
ORDER BY a.agent_id
FOR NO KEY UPDATE OF a;

-- name: claim_issues
-- Issues of runs that are about to begin or to end, locked. $1 ids
SELECT issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at
FROM issues
WHERE issue_id = ANY($1::uuid[])
ORDER BY issue_id
FOR NO KEY UPDATE;

-- name: claim_wakeups_whole
-- Wakeups of runs that are about to begin, and how much these are told, locked. $1 ids
SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason, message, issue_id,
    run_id, occurrence_key, joined_wakeup_id, originator_user_id, accountable_user_id,
    responsible_user_id, autopilot_run_id, attempts, cancel_requested_at IS NOT NULL AS cancel_requested,
    trace_carrier, created_at, claimed_at, finished_at, squad_id, requester_kind,
    requester_id, task_key, comment_ids, fresh_session, coalesced_count, context, told_bytes
FROM wakeup_requests
WHERE wakeup_id = ANY($1::uuid[])
ORDER BY wakeup_id
FOR NO KEY UPDATE;

-- name: joined_to_wakeups
-- The wakes that these carry with them, the oldest of each first, and how many there are of each:
-- what is read of one is bounded, however much has gathered. $1 wakeups, $2 how many of each,
-- $3 bytes of each after which no more are told, $4 the state of those that count
SELECT j.wakeup_id, j.workspace_id, j.agent_id, j.source, j.wake_reason, j.title, j.state, j.reason,
    j.message, j.issue_id, j.run_id, j.occurrence_key, j.joined_wakeup_id, j.originator_user_id,
    j.accountable_user_id, j.responsible_user_id, j.autopilot_run_id, j.attempts,
    j.cancel_requested, j.trace_carrier, j.created_at, j.claimed_at, j.finished_at, j.squad_id,
    j.requester_kind, j.requester_id, j.task_key, j.comment_ids, j.fresh_session,
    j.coalesced_count, j.context, j.all_joined
FROM unnest($1::uuid[]) AS t (wakeup_id)
CROSS JOIN LATERAL (
    SELECT o.wakeup_id, o.workspace_id, o.agent_id, o.source, o.wake_reason, o.title, o.state,
        o.reason, o.message, o.issue_id, o.run_id, o.occurrence_key, o.joined_wakeup_id,
        o.originator_user_id, o.accountable_user_id, o.responsible_user_id, o.autopilot_run_id,
        o.attempts, o.cancel_requested, o.trace_carrier, o.created_at, o.claimed_at, o.finished_at,
        o.squad_id, o.requester_kind, o.requester_id, o.task_key, o.comment_ids, o.fresh_session,
        o.coalesced_count, o.context, o.all_joined, coalesce(sum(p.size) OVER (
        ORDER BY o.created_at, o.wakeup_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS bytes_before
    FROM (
        SELECT wakeup_id, workspace_id, agent_id, source, wake_reason, title, state, reason,
            message, issue_id, run_id, occurrence_key, joined_wakeup_id, originator_user_id,
            accountable_user_id, responsible_user_id, autopilot_run_id, attempts,
            cancel_requested_at IS NOT NULL AS cancel_requested, trace_carrier, created_at,
            claimed_at, finished_at, squad_id, requester_kind, requester_id, task_key, comment_ids,
            fresh_session, coalesced_count, context, count(*) OVER () AS all_joined
        FROM wakeup_requests
        WHERE joined_wakeup_id = t.wakeup_id AND state = $4
        ORDER BY created_at, wakeup_id
        LIMIT $2
    ) o
    CROSS JOIN LATERAL (
        SELECT octet_length(prompt) + octet_length(body) + pg_column_size(facts) AS size
        FROM wakeup_payloads WHERE wakeup_id = o.wakeup_id
    ) p
) j
WHERE j.bytes_before < $3
ORDER BY j.created_at, j.wakeup_id;

-- name: comments_for_wakeups
-- What was said and is to be answered, in the order in which it came; bounded for each wakeup like
-- what has joined it. $1 wakeups, $2 bytes of each after which no more are told
SELECT s.told_to, s.comment_id, s.issue_id, s.workspace_id, s.author_kind, s.author_id, s.run_id,
    c.body, s.created_at, s.all_comments
FROM (
    SELECT w.wakeup_id AS told_to, i.at, c.comment_id, c.issue_id, c.workspace_id, c.author_kind,
        c.author_id, c.run_id, c.created_at, count(*) OVER (PARTITION BY w.wakeup_id) AS all_comments,
        coalesce(sum(octet_length(c.body)) OVER (
            PARTITION BY w.wakeup_id ORDER BY i.at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS bytes_before
    FROM wakeup_requests w
    CROSS JOIN LATERAL unnest(w.comment_ids) WITH ORDINALITY AS i (comment_id, at)
    JOIN issue_comments c ON c.comment_id = i.comment_id
    WHERE w.wakeup_id = ANY($1::uuid[])
) s
JOIN issue_comments c ON c.comment_id = s.comment_id
WHERE s.bytes_before < $2
ORDER BY s.told_to, s.at;

-- name: occupied_per_agent
-- The slots in use, read after the locks. $1 agents
SELECT agent_id, count(*) AS occupied FROM runs
WHERE agent_id = ANY($1::uuid[]) AND occupied
GROUP BY agent_id;

-- name: occupied_issues
-- The issues that a run holds, read after the locks. $1 issues
SELECT issue_id FROM runs WHERE issue_id = ANY($1::uuid[]) AND occupied;

-- name: occupied_in
-- How many slots are in use, in a workspace and in all. $1 workspace
SELECT count(*) FILTER (WHERE workspace_id = $1) AS here, count(*) AS everywhere
FROM runs WHERE occupied;

-- name: claim_runs
-- The claim itself, a compare-and-set on the state. A run that somebody else is just changing is
-- left for the next batch. The deadlines start here, and what its agent is told is fixed. $1 runs, $2 tokens, $3 executor, $4 place,
-- $5 lease (interval)
WITH wanted AS MATERIALIZED (
    SELECT run_id, token FROM unnest($1::uuid[], $2::uuid[]) AS c (run_id, token)
)
UPDATE runs r
SET state = 'running', occupied = true, executor_id = $3, place = $4, lease_token = w.token,
    lease_expires_at = clock() + $5::interval, started_at = clock(),
    deadline_at = CASE WHEN a.run_timeout > '0' THEN clock() + a.run_timeout END,
    idle_deadline_at = CASE WHEN a.idle_timeout > '0' THEN clock() + a.idle_timeout END,
    event_seq = r.event_seq + 1
FROM wanted w, agents a
WHERE w.run_id = r.run_id AND a.agent_id = r.agent_id AND r.ctid = ANY (ARRAY(
    SELECT q.ctid FROM runs q
    WHERE q.run_id = ANY($1::uuid[]) AND q.state = 'queued'
    ORDER BY q.run_id
    FOR NO KEY UPDATE SKIP LOCKED
))
RETURNING r.run_id, r.workspace_id, r.agent_id, r.wakeup_id, r.issue_id, r.state, r.attempt, r.retry_of_run_id, r.retry_reason,
    r.reason, r.message, r.exit_code, r.summary, r.result, r.responsible_user_id, r.occupied, r.executor_id, r.place,
    r.lease_token, r.lease_expires_at, r.deadline_at, r.idle_deadline_at, r.process_pid, r.process_start_ticks,
    r.trace_carrier, r.agent_carrier, r.created_at, r.started_at, r.finished_at, r.follow_up_done_at, r.start_by, r.scheduled_retry_at,
    r.failure_class, r.retry_not_before, r.comment_status, r.left_progress,
    r.last_output_at, r.progress, r.event_seq;

-- name: stamp_execution
-- Claimed runs hold their issues from now on, where the issue belongs to their agent. Whatever is
-- named there before is over, since nobody occupies the issue. $1 issues, $2 runs, $3 agents
UPDATE issues i
SET execution_run_id = c.run_id, execution_locked_at = clock(), revision = i.revision + 1,
    updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS c (issue_id, run_id, agent_id)
WHERE i.issue_id = ANY($1::uuid[]) AND i.issue_id = c.issue_id
    AND i.assignee_agent_id = c.agent_id;

-- name: due_retries
-- A page of the repeats whose time has come, the oldest first. $1 time and $2 run after which it
-- starts, $3 limit
SELECT run_id, scheduled_retry_at FROM runs
WHERE state = 'scheduled_retry' AND scheduled_retry_at <= (SELECT clock())
    AND (scheduled_retry_at, run_id) > ($1::timestamptz, $2::uuid)
ORDER BY scheduled_retry_at, run_id
LIMIT $3;

-- name: retry_is_due
-- Whether a repeat's time has come, asked after the locks. $1 run
SELECT true FROM runs
WHERE run_id = $1 AND state = 'scheduled_retry' AND scheduled_retry_at <= (SELECT clock());

-- name: queue_retries
-- Repeats enter the queue, if their time has come or somebody wants them now; one of two that do it
-- at once finds no row. What they may wait there counts from now. $1 runs, $2 ranks, $3 whether to
-- wait for their time
UPDATE runs r
SET state = 'queued', ready_rank = q.ready_rank, start_by = clock() + a.start_limit,
    event_seq = r.event_seq + 1
FROM unnest($1::uuid[], $2::smallint[]) AS q (run_id, ready_rank), agents a
WHERE r.run_id = q.run_id AND r.state = 'scheduled_retry' AND a.agent_id = r.agent_id
    AND (NOT $3::boolean OR r.scheduled_retry_at <= (SELECT clock()))
RETURNING r.run_id, r.event_seq;
