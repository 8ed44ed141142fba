-- name: insert_approval
-- A decision is asked for. $1 id, $2 workspace, $3 issue, $4 title, $5 description, $6 user,
-- $7 agent, $8 run
INSERT INTO approvals (approval_id, workspace_id, issue_id, title, description,
    requested_by_user_id, requested_by_agent_id, requested_by_run_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING approval_id, workspace_id, issue_id, title, description, status, requested_by_user_id,
    requested_by_agent_id, requested_by_run_id, decided_by, note, revision, created_at, decided_at;

-- name: find_approvals
-- Approvals by id. $1 ids
SELECT approval_id, workspace_id, issue_id, title, description, status, requested_by_user_id,
    requested_by_agent_id, requested_by_run_id, decided_by, note, revision, created_at, decided_at
FROM approvals
WHERE approval_id = ANY($1::uuid[]);

-- name: list_approvals
-- A page of a workspace's approvals, newest first; what is about a deleted issue is gone with it.
-- $1 workspace, $2 statuses (null: all), $3 issue (null: all), $4 run that asked (null: all),
-- $5 id before which it starts (null: newest), $6 limit
SELECT a.approval_id, a.workspace_id, a.issue_id, a.title, a.description, a.status,
    a.requested_by_user_id, a.requested_by_agent_id, a.requested_by_run_id, a.decided_by, a.note,
    a.revision, a.created_at, a.decided_at
FROM approvals a LEFT JOIN issues i ON i.issue_id = a.issue_id
WHERE a.workspace_id = $1
    AND ($2::text[] IS NULL OR a.status = ANY($2))
    AND ($3::uuid IS NULL OR a.issue_id = $3)
    AND ($4::uuid IS NULL OR a.requested_by_run_id = $4)
    AND ($5::uuid IS NULL OR a.approval_id < $5)
    AND i.deleted_at IS NULL
ORDER BY a.approval_id DESC
LIMIT $6;

-- name: task_of_run
-- What keeps the conversation together that an attempt belongs to. $1 run
SELECT w.task_key FROM runs r JOIN wakeup_requests w ON w.wakeup_id = r.wakeup_id
WHERE r.run_id = $1;

-- name: decide_approval
-- One decision wins: no row when it was changed since it was read. $1 id, $2 revision it had,
-- $3 status, $4 who decides, $5 note
UPDATE approvals
SET status = $3, decided_by = $4, note = $5, decided_at = clock(), revision = revision + 1
WHERE approval_id = $1 AND revision = $2
RETURNING approval_id, workspace_id, issue_id, title, description, status, requested_by_user_id,
    requested_by_agent_id, requested_by_run_id, decided_by, note, revision, created_at, decided_at;

-- name: drop_approvals_of_issue
-- Nobody needs what was asked about an issue that is gone. $1 issue, $2 who removed it
UPDATE approvals
SET status = 'cancelled', decided_by = $2, decided_at = clock(), revision = revision + 1
WHERE issue_id = $1 AND status = 'pending'
RETURNING approval_id, workspace_id, issue_id, title, description, status, requested_by_user_id,
    requested_by_agent_id, requested_by_run_id, decided_by, note, revision, created_at, decided_at;
