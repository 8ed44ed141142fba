-- name: insert_squad
-- A new squad; no row when the name is taken. $1 id, $2 workspace, $3 name, $4 leader
INSERT INTO squads (squad_id, workspace_id, name, leader_agent_id)
VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING squad_id;

-- name: update_squad
-- A new form for the one that was read; no row when it is another now.
-- $1 id, $2 revision, $3 name, $4 leader
UPDATE squads
SET name = $3, leader_agent_id = $4, revision = revision + 1, updated_at = clock()
WHERE squad_id = $1 AND revision = $2;

-- name: move_squad
-- Pause, resume, archive; no row when it was changed since it was read.
-- $1 id, $2 revision, $3 state, $4 why it is paused
UPDATE squads
SET state = $3, pause_reason = $4,
    paused_at = CASE WHEN $3 = 'paused' THEN clock() END,
    archived_at = CASE WHEN $3 = 'archived' THEN clock() END,
    revision = revision + 1, updated_at = clock()
WHERE squad_id = $1 AND revision = $2;

-- name: add_members
-- Agents join a squad. $1 squad, $2 agents
INSERT INTO squad_members (squad_id, agent_id)
SELECT $1, m.agent_id FROM unnest($2::uuid[]) AS m (agent_id)
ON CONFLICT (squad_id, agent_id) DO NOTHING;

-- name: remove_members
-- All leave a squad but some. $1 squad, $2 agents that stay
DELETE FROM squad_members WHERE squad_id = $1 AND agent_id <> ALL($2::uuid[]);

-- name: list_squads
-- A page of a workspace's squads by name. $1 workspace, $2 name after which it starts, $3 limit
SELECT s.squad_id, s.workspace_id, s.name, s.leader_agent_id, s.state, s.pause_reason, s.revision,
    s.created_at, s.updated_at,
    ARRAY(
        SELECT m.agent_id FROM squad_members m WHERE m.squad_id = s.squad_id ORDER BY m.agent_id
    ) AS member_agent_ids
FROM squads s
WHERE s.workspace_id = $1 AND ($2::text IS NULL OR s.name > $2)
ORDER BY s.name
LIMIT $3;
