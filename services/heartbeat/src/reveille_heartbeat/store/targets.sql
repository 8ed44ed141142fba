-- name: find_squads
-- Squads with the agents in them. $1 ids
SELECT s.squad_id, s.workspace_id, s.name, s.leader_agent_id, s.state, s.pause_reason, s.revision,
    s.created_at, s.updated_at,
    ARRAY(
        SELECT m.agent_id FROM squad_members m WHERE m.squad_id = s.squad_id ORDER BY m.agent_id
    ) AS member_agent_ids
FROM squads s
WHERE s.squad_id = ANY($1::uuid[])
ORDER BY s.name;

-- name: find_managers
-- Everybody above some agents; a chain that comes back to itself ends there. $1 agents
WITH RECURSIVE above (agent_id) AS (
    SELECT a.manager_agent_id FROM agents a
    WHERE a.agent_id = ANY($1::uuid[]) AND a.manager_agent_id IS NOT NULL
    UNION
    SELECT m.manager_agent_id FROM above u JOIN agents m ON m.agent_id = u.agent_id
    WHERE m.manager_agent_id IS NOT NULL
)
SELECT m.agent_id, m.workspace_id, m.name, m.state, m.manager_agent_id
FROM above u JOIN agents m ON m.agent_id = u.agent_id;

-- name: read_chain
-- An agent and everybody above it; a chain that comes back to itself ends there. $1 agent
WITH RECURSIVE chain (agent_id) AS (
    SELECT $1::uuid
    UNION
    SELECT m.manager_agent_id FROM chain u JOIN agents m ON m.agent_id = u.agent_id
    WHERE m.manager_agent_id IS NOT NULL
)
SELECT m.agent_id, m.workspace_id, m.name, m.state, m.manager_agent_id
FROM chain u JOIN agents m ON m.agent_id = u.agent_id;

-- name: open_projects
-- Which projects work is done for. $1 ids
SELECT project_id, workspace_id FROM projects
WHERE project_id = ANY($1::uuid[]) AND state = 'active';
