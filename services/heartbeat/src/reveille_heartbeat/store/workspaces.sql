-- name: put_workspace
-- The wanted state as its owner sends it; an older revision touches no row.
-- $1 workspace, $2 issue prefix, $3 default responsible user, $4 revision, $5 status
INSERT INTO workspaces (workspace_id, issue_prefix, default_responsible_user_id, revision, status)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id) DO UPDATE
SET issue_prefix = excluded.issue_prefix,
    default_responsible_user_id = excluded.default_responsible_user_id,
    revision = excluded.revision,
    status = excluded.status,
    updated_at = clock()
WHERE workspaces.revision < excluded.revision;

-- name: find_workspaces
-- The workspaces that are known here. $1 ids
SELECT workspace_id, issue_prefix, default_responsible_user_id, status
FROM workspaces
WHERE workspace_id = ANY($1::uuid[]);

-- name: lock_workspace_for_claim
-- One claimer per workspace; whoever finds it taken goes to the next. Where work rests, what waits
-- goes on waiting. $1 workspace
SELECT workspace_id FROM workspaces WHERE workspace_id = $1 AND status = 'active'
FOR NO KEY UPDATE SKIP LOCKED;

-- name: ensure_local_runtime
-- Every workspace has a place to run at. $1 new id, $2 workspace, $3 presence (interval)
INSERT INTO runtimes (runtime_id, workspace_id, name, kind, presence_expires_at)
VALUES ($1, $2, 'local', 'local', clock() + $3::interval)
ON CONFLICT (workspace_id, name) DO UPDATE
SET presence_expires_at = greatest(runtimes.presence_expires_at, excluded.presence_expires_at)
RETURNING runtime_id;

-- name: renew_local_runtimes
-- Any replica that lives keeps the local runtimes present; only rows that need it are written.
-- $1 presence (interval), $2 limit
UPDATE runtimes
SET presence_expires_at = clock() + $1::interval
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM runtimes
    WHERE kind = 'local' AND presence_expires_at < (SELECT clock()) + $1::interval * 0.67
    ORDER BY presence_expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
));

-- name: read_clock
-- The clock that every predicate uses.
SELECT clock() AS now;
