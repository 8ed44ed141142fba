-- name: next_issue_number
-- Numbers without gaps per workspace. $1 workspace
INSERT INTO issue_numbers (workspace_id, last_number) VALUES ($1, 1)
ON CONFLICT (workspace_id) DO UPDATE SET last_number = issue_numbers.last_number + 1
RETURNING last_number;

-- name: insert_issue
-- A new issue. $1 id, $2 workspace, $3 number, $4 identifier, $5 title, $6 description,
-- $7 status, $8 priority, $9 assignee, $10 responsible user, $11 occurrence key, $12 carrier
INSERT INTO issues (issue_id, workspace_id, number, identifier, title, description, status,
    priority, assignee_agent_id, responsible_user_id, occurrence_key, trace_carrier)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
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
-- The issues of one identifier, one per workspace at most. $1 identifier, $2 workspace (null: all)
SELECT issue_id, workspace_id FROM issues
WHERE identifier = $1 AND ($2::uuid IS NULL OR workspace_id = $2) AND deleted_at IS NULL
LIMIT 100;

-- name: lock_issues
-- Whoever places, claims, moves or ends work on an issue does it alone. $1 ids
SELECT issue_id, status FROM issues
WHERE issue_id = ANY($1::uuid[])
ORDER BY issue_id
FOR NO KEY UPDATE;

-- name: list_issues
-- A page of a workspace's issues, newest first. $1 workspace, $2 statuses (null: all),
-- $3 assignee (null: all), $4 id before which it starts (null: newest), $5 limit
SELECT issue_id, workspace_id, identifier, title, '' AS description, status, priority,
    assignee_agent_id, responsible_user_id, occurrence_key, (
        SELECT r.run_id FROM runs r WHERE r.run_id = issues.execution_run_id AND r.occupied
    ) AS execution_run_id, revision,
    trace_carrier, created_at, updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at
FROM issues
WHERE workspace_id = $1
    AND ($2::text[] IS NULL OR status = ANY($2))
    AND ($3::uuid IS NULL OR assignee_agent_id = $3)
    AND ($4::uuid IS NULL OR issue_id < $4)
ORDER BY issue_id DESC
LIMIT $5;

-- name: move_issue
-- The caller holds the lock and has judged the move; the old status makes it a compare-and-set.
-- $1 id, $2 status it has, $3 status it gets
UPDATE issues
SET status = $3, revision = revision + 1, updated_at = clock()
WHERE issue_id = $1 AND status = $2
RETURNING issue_id, workspace_id, identifier, title, description, status, priority, assignee_agent_id,
    responsible_user_id, occurrence_key, execution_run_id, revision, trace_carrier, created_at,
    updated_at, project_id, parent_issue_id,
    assignee_user_id, reviewer_agent_id, reviewer_user_id, checkout_run_id, origin_kind, origin_id,
    started_at, ended_at, last_input_at, deleted_at;

-- name: rank_queued_runs
-- The place in the queue depends on the issue's status and moves with it. $1 issue, $2 rank
UPDATE runs SET ready_rank = $2 WHERE issue_id = $1 AND state = 'queued' AND ready_rank <> $2;

-- name: stamp_execution
-- The claimed runs hold their issues from now on. $1 issues, $2 runs
UPDATE issues i
SET execution_run_id = c.run_id, revision = i.revision + 1, updated_at = clock()
FROM unnest($1::uuid[], $2::uuid[]) AS c (issue_id, run_id)
WHERE i.issue_id = c.issue_id;

-- name: clear_execution
-- Only what this run holds. $1 issue, $2 run
UPDATE issues
SET execution_run_id = NULL, revision = revision + 1, updated_at = clock()
WHERE issue_id = $1 AND execution_run_id = $2;
