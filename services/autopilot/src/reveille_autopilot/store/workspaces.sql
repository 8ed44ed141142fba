-- name: insert_workspace
-- The issue prefix is unique; its constraint is how a taken one is told.
-- $1 id, $2 name, $3 issue_prefix, $4 attribution_fail_closed, $5 default_responsible_user_id
INSERT INTO workspaces
    (id, name, issue_prefix, attribution_fail_closed, default_responsible_user_id)
VALUES ($1, $2, $3, $4, $5)
RETURNING id, name, issue_prefix, attribution_fail_closed, default_responsible_user_id,
    quota_action, quota_limit, quota_period, status, revision, created_at;

-- name: get_workspace
-- One workspace. $1 id
SELECT id, name, issue_prefix, attribution_fail_closed, default_responsible_user_id,
    quota_action, quota_limit, quota_period, status, revision, created_at
FROM workspaces
WHERE id = $1;

-- name: lock_workspaces
-- Edits of a workspace, and of who owns it, follow each other. $1 ids
SELECT id, name, issue_prefix, attribution_fail_closed, default_responsible_user_id,
    quota_action, quota_limit, quota_period, status, revision, created_at
FROM workspaces
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: update_workspace
-- An edit, already locked; the revision read under the lock guards against a lost lock.
-- $1 id, $2 the revision before, $3 name, $4 attribution_fail_closed,
-- $5 default_responsible_user_id, $6 quota_action, $7 quota_limit, $8 quota_period, $9 status
UPDATE workspaces
SET name = $3, attribution_fail_closed = $4, default_responsible_user_id = $5, quota_action = $6,
    quota_limit = $7, quota_period = $8, status = $9, revision = revision + 1
WHERE id = $1 AND revision = $2
RETURNING id, name, issue_prefix, attribution_fail_closed, default_responsible_user_id,
    quota_action, quota_limit, quota_period, status, revision, created_at;

-- name: list_workspaces
-- Newest first; a user sees those with a membership row, others see all.
-- $1 user_id or null for all, $2 before id or null, $3 limit
SELECT w.id, w.name, w.issue_prefix, w.attribution_fail_closed, w.default_responsible_user_id,
    w.quota_action, w.quota_limit, w.quota_period, w.status, w.revision, w.created_at
FROM workspaces w
WHERE ($1::text IS NULL
        OR EXISTS (SELECT 1 FROM members m WHERE m.workspace_id = w.id AND m.user_id = $1))
    AND ($2::uuid IS NULL OR w.id < $2)
ORDER BY w.id DESC
LIMIT $3;

-- name: put_member
-- Adds a member, or changes the role of one. $1 workspace_id, $2 user_id, $3 role
INSERT INTO members (workspace_id, user_id, role)
VALUES ($1, $2, $3)
ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = excluded.role
RETURNING workspace_id, user_id, role, created_at;

-- name: get_role
-- The caller's own place in a workspace. $1 workspace_id, $2 user_id
SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2;

-- name: list_members
-- By user id. $1 workspace_id, $2 after user_id or null, $3 limit
SELECT workspace_id, user_id, role, created_at
FROM members
WHERE workspace_id = $1 AND ($2::text IS NULL OR user_id > $2)
ORDER BY user_id
LIMIT $3;

-- name: unsynced_workspaces
-- What heartbeat has not confirmed in its present form. $1 after this id, $2 limit
SELECT id, issue_prefix, default_responsible_user_id, status, revision
FROM workspaces
WHERE revision <> synced_revision AND id > $1
ORDER BY id
LIMIT $2;

-- name: unsynced_workspaces_of
-- The same for some of them. $1 ids
SELECT id, issue_prefix, default_responsible_user_id, status, revision
FROM workspaces
WHERE revision <> synced_revision AND id = ANY($1::uuid[]);

-- name: mark_workspaces_synced
-- Only the revision that was sent counts as confirmed: a newer one is sent again.
-- $1 ids, $2 revisions
UPDATE workspaces w
SET synced_revision = i.revision, sync_error = ''
FROM unnest($1::uuid[], $2::bigint[]) AS i (id, revision)
WHERE w.id = i.id AND w.revision = i.revision;

-- name: note_workspaces_refused
-- What heartbeat said; it is about the revision that was sent, so a newer one is left alone.
-- $1 ids, $2 revisions, $3 causes
UPDATE workspaces w
SET sync_error = i.cause
FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS i (id, revision, cause)
WHERE w.id = i.id AND w.revision = i.revision AND w.synced_revision <> i.revision;

-- name: workspace_sync_state
-- Whether heartbeat has confirmed the present form, and what it said if it refused it. $1 id
SELECT revision = synced_revision AS synced, sync_error FROM workspaces WHERE id = $1;
