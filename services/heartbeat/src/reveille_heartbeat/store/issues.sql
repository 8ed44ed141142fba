-- name: next_issue_number
-- Numbers without gaps per workspace. $1 workspace
INSERT INTO issue_numbers (workspace_id, last_number) VALUES ($1, 1)
ON CONFLICT (workspace_id) DO UPDATE SET last_number = issue_numbers.last_number + 1
RETURNING last_number;

-- name: insert_issue
-- A new issue. $1 id, $2 workspace, $3 number, $4 identifier, $5 title, $6 description,
-- $7 status, $8 priority, $9 assignee, $10 responsible user, $11 occurrence key, $12 carrier,
-- $13 project, $14 parent, $15 assigned user, $16 reviewing agent, $17 reviewing user,
-- $18 kind of origin, $19 origin
INSERT INTO issues (issue_id, workspace_id, number, identifier, title, description, status,
    priority, assignee_agent_id, responsible_user_id, occurrence_key, trace_carrier, project_id,
    parent_issue_id, assignee_user_id, reviewer_agent_id, reviewer_user_id, origin_kind, origin_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: find_issues
-- Issues by id; a lock counts only while its run holds something. $1 ids
SELECT issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, (
        SELECT r.run_id FROM runs r WHERE r.run_id = issues.execution_run_id AND r.occupied
    ) AS execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at
FROM issues
WHERE issue_id = ANY($1::uuid[]);

-- name: issues_by_identifier
-- Issues that a batch of callers names. $1 identifiers, $2 workspaces
SELECT i.issue_id, i.workspace_id, i.identifier
FROM unnest($1::text[], $2::uuid[]) AS n (identifier, workspace_id)
JOIN issues i ON i.identifier = n.identifier AND i.workspace_id = n.workspace_id
WHERE i.deleted_at IS NULL;

-- name: issues_of_identifier
-- The issues of one identifier, one per workspace at most; two are one too many. $1 identifier,
-- $2 workspaces (null: all)
SELECT issue_id FROM issues
WHERE identifier = $1 AND ($2::uuid[] IS NULL OR workspace_id = ANY($2)) AND deleted_at IS NULL
LIMIT 2;

-- name: lock_issues
-- Whoever places, claims, moves or ends work on an issue does it alone. $1 ids
SELECT issue_id, status FROM issues
WHERE issue_id = ANY($1::uuid[])
ORDER BY issue_id
FOR NO KEY UPDATE;

-- name: list_issues
-- A page of a workspace's issues, newest first. $1 workspace, $2 statuses (null: all),
-- $3 assigned agent, $4 assigned user, $5 project, $6 parent (null: all), $7 id before which it
-- starts (null: newest), $8 limit
SELECT issue_id, workspace_id, identifier, title, '' AS description, status, priority,
    assignee_agent_id, responsible_user_id, occurrence_key, (
        SELECT r.run_id FROM runs r WHERE r.run_id = issues.execution_run_id AND r.occupied
    ) AS execution_run_id, revision,
    trace_carrier, created_at, updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at
FROM issues
WHERE workspace_id = $1
    AND deleted_at IS NULL
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::uuid IS NULL OR assignee_agent_id = $3)
    AND ($4::text IS NULL OR assignee_user_id = $4)
    AND ($5::uuid IS NULL OR project_id = $5)
    AND ($6::uuid IS NULL OR parent_issue_id = $6)
    AND ($7::uuid IS NULL OR issue_id < $7)
ORDER BY issue_id DESC
LIMIT $8;

-- name: issue_details
-- What is shown beside the rows of issues. $1 issues
SELECT i.issue_id,
    ARRAY(SELECT r.blocker_issue_id FROM issue_relations r WHERE r.issue_id = i.issue_id
        ORDER BY r.blocker_issue_id) AS blockers,
    ARRAY(SELECT s.user_id FROM issue_subscribers s WHERE s.issue_id = i.issue_id
        ORDER BY s.user_id) AS subscribers
FROM unnest($1::uuid[]) AS i (issue_id);

-- name: subscribe
-- People who want to hear of an issue. $1 issue, $2 users
INSERT INTO issue_subscribers (issue_id, user_id)
SELECT $1, u.user_id FROM unnest($2::text[]) AS u (user_id)
ON CONFLICT DO NOTHING;

-- name: unsubscribe_others
-- Those who stay are named. $1 issue, $2 users
DELETE FROM issue_subscribers WHERE issue_id = $1 AND user_id <> ALL($2::text[]);

-- name: lock_issue_graph
-- Who ties issues of a workspace to each other does it alone, so that no two make a circle together.
-- Taken before the locks of issues. $1 workspace
SELECT workspace_id FROM issue_numbers WHERE workspace_id = $1 FOR NO KEY UPDATE;

-- name: edit_issue
-- A change of what was read under the lock; no row when it is not that any more. $1 id,
-- $2 revision it had, $3 title, $4 description, $5 priority, $6 assigned agent, $7 assigned user,
-- $8 reviewing agent, $9 reviewing user, $10 project, $11 parent, $12 responsible user,
-- $13 whether that is news to the agent that works on it, $14 whether it is given up by its owner
UPDATE issues
SET title = $3, description = $4, priority = $5, assignee_agent_id = $6, assignee_user_id = $7,
    reviewer_agent_id = $8, reviewer_user_id = $9, project_id = $10, parent_issue_id = $11,
    responsible_user_id = $12, revision = revision + 1, updated_at = clock(),
    last_input_at = CASE WHEN $13 THEN clock() ELSE last_input_at END,
    checkout_run_id = CASE WHEN $14 THEN NULL ELSE checkout_run_id END
WHERE issue_id = $1 AND revision = $2
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: touch_issue
-- Something that belongs to it has changed. $1 id, $2 whether that is news to the agent that works
-- on it
UPDATE issues
SET revision = revision + 1, updated_at = clock(),
    last_input_at = CASE WHEN $2 THEN clock() ELSE last_input_at END
WHERE issue_id = $1
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: note_input
-- Others than the agent at work said something; what was read of it is still so. $1 id
UPDATE issues SET last_input_at = clock() WHERE issue_id = $1;

-- name: delete_issue
-- It is gone for everybody; its history stays. No row when it is gone already. $1 id
UPDATE issues
SET deleted_at = clock(), revision = revision + 1, updated_at = clock(), checkout_run_id = NULL
WHERE issue_id = $1 AND deleted_at IS NULL
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: move_issue
-- The caller holds the lock and has judged the move; the old status makes it a compare-and-set. What
-- has ended is nobody's any more. $1 id, $2 status it has, $3 status it gets, $4 whether that is
-- news to the agent that works on it
UPDATE issues
SET status = $3, revision = revision + 1, updated_at = clock(),
    started_at = CASE WHEN $3 = 'in_progress' THEN coalesce(started_at, clock()) ELSE started_at END,
    ended_at = CASE WHEN $3 IN ('done', 'cancelled') THEN clock() END,
    checkout_run_id = CASE WHEN $3 IN ('done', 'cancelled') THEN NULL ELSE checkout_run_id END,
    last_input_at = CASE WHEN $4 THEN clock() ELSE last_input_at END
WHERE issue_id = $1 AND status = $2
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: related_issues
-- Issues, what they block and what they are parts of. $1 issues
SELECT i.issue_id FROM unnest($1::uuid[]) AS i (issue_id)
UNION
SELECT r.issue_id FROM issue_relations r WHERE r.blocker_issue_id = ANY($1::uuid[])
UNION
SELECT p.parent_issue_id FROM issues p
WHERE p.issue_id = ANY($1::uuid[]) AND p.parent_issue_id IS NOT NULL;

-- name: issues_above
-- What an issue is a part of, nearest first. $1 issue, $2 levels to walk up at most
WITH RECURSIVE above (issue_id, parent_issue_id, depth) AS (
    SELECT issue_id, parent_issue_id, 0 FROM issues WHERE issue_id = $1
    UNION ALL
    SELECT p.issue_id, p.parent_issue_id, a.depth + 1
    FROM above a JOIN issues p ON p.issue_id = a.parent_issue_id
    WHERE a.depth < $2
)
SELECT issue_id, depth FROM above WHERE depth > 0 ORDER BY depth;

-- name: completed_parents
-- What has no open part any more, with its parts and when they ended. $1 parts
SELECT p.issue_id, c.facts
FROM (
    SELECT DISTINCT i.parent_issue_id AS issue_id FROM issues i
    WHERE i.issue_id = ANY($1::uuid[]) AND i.parent_issue_id IS NOT NULL
) p
CROSS JOIN LATERAL (
    SELECT bool_and(c.status IN ('done', 'cancelled')) AS ended,
        array_agg(c.issue_id || '@' || (extract(epoch FROM c.ended_at) * 1000000)::bigint
            ORDER BY c.issue_id) AS facts
    FROM issues c
    WHERE c.parent_issue_id = p.issue_id AND c.deleted_at IS NULL
) c
WHERE c.ended;

-- name: queue_places
-- The runs that wait for issues, with what their places depend on. Blockers are counted, which is
-- done issue by issue: an EXISTS may also be answered from a hash of all blockers there are.
-- $1 issues
SELECT r.run_id, r.ready_rank, r.priority, i.status, i.priority AS issue_priority, (
        SELECT count(*) FROM issue_relations l JOIN issues b ON b.issue_id = l.blocker_issue_id
        WHERE l.issue_id = i.issue_id AND b.status <> 'done'
    ) > 0 AS waits
FROM runs r JOIN issues i ON i.issue_id = r.issue_id
WHERE r.issue_id = ANY($1::uuid[]) AND r.state IN ('queued', 'scheduled_retry');

-- name: place_runs
-- New places in the queue. $1 runs, $2 ranks, $3 priorities
UPDATE runs r SET ready_rank = p.ready_rank, priority = p.priority
FROM unnest($1::uuid[], $2::smallint[], $3::smallint[]) AS p (run_id, ready_rank, priority)
WHERE r.run_id = p.run_id AND r.state IN ('queued', 'scheduled_retry');

-- name: live_runs
-- Those of the attempts that wait in any way, or work. $1 runs
SELECT run_id FROM runs
WHERE run_id = ANY($1::uuid[]) AND (state IN ('queued', 'scheduled_retry') OR occupied);

-- name: own_issue
-- An attempt takes an issue from exactly those who were judged not to have it any more; no row when
-- it is another's meanwhile. $1 issue, $2 agent, $3 run, $4 status, $5 owner and $6 holder it had
UPDATE issues
SET assignee_agent_id = $2, checkout_run_id = $3, execution_run_id = $3,
    execution_locked_at = CASE WHEN execution_run_id = $3 THEN execution_locked_at ELSE clock() END,
    revision = revision + 1, updated_at = clock()
WHERE issue_id = $1 AND status = $4 AND checkout_run_id IS NOT DISTINCT FROM $5
    AND execution_run_id IS NOT DISTINCT FROM $6
    AND (assignee_agent_id IS NULL OR assignee_agent_id = $2) AND assignee_user_id = ''
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: disown_issue
-- Nobody's any more. $1 issue
UPDATE issues
SET assignee_agent_id = NULL, assignee_user_id = '', checkout_run_id = NULL,
    execution_run_id = NULL, execution_locked_at = NULL, revision = revision + 1,
    updated_at = clock(), last_input_at = clock()
WHERE issue_id = $1
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;
