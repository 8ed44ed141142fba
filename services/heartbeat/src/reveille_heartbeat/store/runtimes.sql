-- name: keep_runtime
-- A runtime that an agent is about to be bound to, kept from being deleted meanwhile.
-- $1 id, $2 workspace
SELECT runtime_id FROM runtimes WHERE runtime_id = $1 AND workspace_id = $2 FOR KEY SHARE;

-- name: register_runtime
-- A new runtime, away until it reports; no row when the name is known. $1 id, $2 workspace,
-- $3 name, $4 metadata
INSERT INTO runtimes (runtime_id, workspace_id, name, kind, presence_expires_at, metadata)
VALUES ($1, $2, $3, 'remote', clock(), $4)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING runtime_id;

-- name: report_runtime
-- A sign of life; what is told of it stays where nothing new came. $1 id, $2 presence (interval),
-- $3 why it is of no use, $4 metadata (null: unchanged)
UPDATE runtimes
SET presence_expires_at = clock() + $2::interval, unusable_reason = $3,
    metadata = coalesce($4, metadata), updated_at = clock()
WHERE runtime_id = $1 AND kind = 'remote';

-- name: find_runtimes
-- Runtimes by id. $1 ids
SELECT runtime_id, workspace_id, name, kind, presence_expires_at > (SELECT clock()) AS present,
    unusable_reason, metadata, presence_expires_at, created_at
FROM runtimes
WHERE runtime_id = ANY($1::uuid[]);

-- name: find_runtime_by_name
-- The runtime of a name. $1 workspace, $2 name
SELECT runtime_id, workspace_id, name, kind, presence_expires_at > (SELECT clock()) AS present,
    unusable_reason, metadata, presence_expires_at, created_at
FROM runtimes
WHERE workspace_id = $1 AND name = $2;

-- name: list_runtimes
-- A page of a workspace's runtimes by name. $1 workspace, $2 name after which it starts, $3 limit
SELECT runtime_id, workspace_id, name, kind, presence_expires_at > (SELECT clock()) AS present,
    unusable_reason, metadata, presence_expires_at, created_at
FROM runtimes
WHERE workspace_id = $1 AND ($2::text IS NULL OR name > $2)
ORDER BY name
LIMIT $3;

-- name: agents_at
-- The agents of a runtime. $1 runtime
SELECT agent_id FROM agents WHERE runtime_id = $1;

-- name: lock_runtime
-- Nobody is bound to it any more, after the locks of those that are. $1 id
SELECT runtime_id FROM runtimes WHERE runtime_id = $1 FOR UPDATE;

-- name: unbind_agents
-- They have no runtime until they get another. $1 agents
UPDATE agents SET runtime_id = NULL, revision = revision + 1, updated_at = clock()
WHERE agent_id = ANY($1::uuid[]);

-- name: delete_runtime
-- It is gone; its agents were unbound before. $1 id
DELETE FROM runtimes WHERE runtime_id = $1;
