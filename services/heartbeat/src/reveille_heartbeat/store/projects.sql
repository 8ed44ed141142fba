-- name: insert_project
-- A new project; no row when the name is taken. $1 id, $2 workspace, $3 name, $4 description
INSERT INTO projects (project_id, workspace_id, name, description)
VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING project_id, workspace_id, name, description, state, revision, created_at, updated_at;

-- name: find_projects
-- Projects by id. $1 ids
SELECT project_id, workspace_id, name, description, state, revision, created_at, updated_at
FROM projects
WHERE project_id = ANY($1::uuid[]);

-- name: list_projects
-- A page of a workspace's projects by name. $1 workspace, $2 name after which it starts, $3 limit
SELECT project_id, workspace_id, name, description, state, revision, created_at, updated_at
FROM projects
WHERE workspace_id = $1 AND ($2::text IS NULL OR name > $2)
ORDER BY name
LIMIT $3;

-- name: update_project
-- A change of what was read; no row when it was changed since, or the name is taken.
-- $1 id, $2 revision it had, $3 name, $4 description, $5 state
UPDATE projects p
SET name = $3, description = $4, state = $5,
    archived_at = CASE WHEN $5 = 'archived' THEN coalesce(p.archived_at, clock()) END,
    revision = p.revision + 1, updated_at = clock()
WHERE p.project_id = $1 AND p.revision = $2 AND NOT EXISTS (
        SELECT FROM projects o
        WHERE o.workspace_id = p.workspace_id AND o.name = $3 AND o.project_id <> $1
    )
RETURNING project_id, workspace_id, name, description, state, revision, created_at, updated_at;
