-- name: issue_facts
-- Issues without their text, with who answers for the one above. $1 ids
SELECT i.issue_id, i.workspace_id, i.identifier, i.title, '' AS description, i.status, i.priority,
    i.assignee_agent_id, i.responsible_user_id, i.occurrence_key, i.execution_run_id, i.revision,
    i.trace_carrier, i.created_at, i.updated_at, i.project_id, i.parent_issue_id,
    i.assignee_user_id, i.reviewer_agent_id, i.reviewer_user_id, i.checkout_run_id, i.origin_kind,
    i.origin_id, i.started_at, i.ended_at, i.last_input_at, i.deleted_at,
    coalesce(p.responsible_user_id, '') AS parent_responsible_user_id
FROM issues i LEFT JOIN issues p ON p.issue_id = i.parent_issue_id
WHERE i.issue_id = ANY($1::uuid[]);

-- name: comments_by_id
-- Who wrote comments, on which issue, and how much. $1 comments
SELECT comment_id, issue_id, author_kind, author_id, run_id, octet_length(body) AS size
FROM issue_comments
WHERE comment_id = ANY($1::uuid[])
ORDER BY comment_id;

-- name: agents_with_work
-- Agents that an issue waits for. $1 agents
SELECT i.assignee_agent_id AS agent_id FROM unnest($1::uuid[]) AS a (agent_id)
CROSS JOIN LATERAL (
    SELECT assignee_agent_id FROM issues
    WHERE assignee_agent_id = a.agent_id AND status IN ('todo', 'in_progress')
        AND deleted_at IS NULL
    LIMIT 1
) i;

-- name: past_runs_of_issues
-- What agents last did on issues, newest first. $1 agents, $2 issues, $3 limit per pair
SELECT k.agent_id, k.issue_id, r.finished_at, r.state, r.left_progress
FROM unnest($1::uuid[], $2::uuid[]) AS k (agent_id, issue_id)
CROSS JOIN LATERAL (
    SELECT finished_at, state, left_progress FROM runs
    WHERE issue_id = k.issue_id AND agent_id = k.agent_id AND finished_at IS NOT NULL
        AND started_at IS NOT NULL
    ORDER BY run_id DESC
    LIMIT $3
) r
ORDER BY r.finished_at DESC;

-- name: last_free_runs
-- When agents last ended a run about no issue. $1 agents
SELECT k.agent_id, r.finished_at, r.state, r.left_progress
FROM unnest($1::uuid[]) AS k (agent_id)
CROSS JOIN LATERAL (
    SELECT finished_at, state, left_progress FROM runs
    WHERE agent_id = k.agent_id AND issue_id IS NULL AND finished_at IS NOT NULL
        AND started_at IS NOT NULL
    ORDER BY run_id DESC
    LIMIT 1
) r;

-- name: use_of_today
-- What agents have had since the beginning of the UTC day: runs that were started, and their cost.
-- $1 agents
SELECT k.agent_id,
    (SELECT count(*) FROM runs r
     WHERE r.agent_id = k.agent_id
        AND r.started_at >= date_trunc('day', (SELECT clock()), 'UTC')) AS runs,
    (SELECT coalesce(sum(c.cost_cents), 0) FROM cost_events c
     WHERE c.agent_id = k.agent_id
        AND c.day = ((SELECT clock()) AT TIME ZONE 'UTC')::date) AS cost_cents
FROM unnest($1::uuid[]) AS k (agent_id);

-- name: open_wakes_on_issues
-- Wakes without a key that have not ended, with where their newest attempt stands, of agents on
-- issues. The newest: whatever is full is the oldest. $1 agents, $2 issues
SELECT w.wakeup_id, w.agent_id, w.issue_id, w.task_key, w.state, w.comment_ids, w.fresh_session,
    w.context, w.run_id, r.state AS run_state, w.coalesced_count, w.told_bytes
FROM unnest($1::uuid[], $2::uuid[]) AS k (agent_id, issue_id)
CROSS JOIN LATERAL (
    SELECT wakeup_id, agent_id, issue_id, task_key, state, comment_ids, fresh_session, context,
        run_id, created_at, coalesced_count, told_bytes
    FROM wakeup_requests
    WHERE agent_id = k.agent_id AND issue_id = k.issue_id
        AND state IN ('queued', 'deferred', 'claimed') AND occurrence_key IS NULL
    ORDER BY created_at DESC, wakeup_id DESC
    LIMIT 20
) w
LEFT JOIN runs r ON r.run_id = w.run_id
ORDER BY w.created_at, w.wakeup_id;

-- name: open_wakes_on_tasks
-- The same of agents on what is about no issue. $1 agents, $2 task keys
SELECT w.wakeup_id, w.agent_id, w.issue_id, w.task_key, w.state, w.comment_ids, w.fresh_session,
    w.context, w.run_id, r.state AS run_state, w.coalesced_count, w.told_bytes
FROM unnest($1::uuid[], $2::text[]) AS k (agent_id, task_key)
CROSS JOIN LATERAL (
    SELECT wakeup_id, agent_id, issue_id, task_key, state, comment_ids, fresh_session, context,
        run_id, created_at, coalesced_count, told_bytes
    FROM wakeup_requests
    WHERE agent_id = k.agent_id AND issue_id IS NULL AND task_key = k.task_key
        AND state IN ('queued', 'deferred', 'claimed') AND occurrence_key IS NULL
    ORDER BY created_at DESC, wakeup_id DESC
    LIMIT 20
) w
LEFT JOIN runs r ON r.run_id = w.run_id
ORDER BY w.created_at, w.wakeup_id;
