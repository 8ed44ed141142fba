-- name: insert_agent
-- A new agent; no row when the name is taken. $1 id, $2 workspace, $3 name, $4 adapter,
-- $5 adapter config, $6 runtime, $7 owner, $8 invocation rule, $9 invocation users,
-- $10 max concurrent runs, $11 run timeout, $12 idle timeout
INSERT INTO agents (agent_id, workspace_id, name, adapter, adapter_config, runtime_id,
    owner_user_id, invocation_rule, invocation_user_ids, max_concurrent_runs, run_timeout,
    idle_timeout)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING agent_id;

-- name: find_agents
-- What decisions need of agents. $1 ids
SELECT a.agent_id, a.workspace_id, a.name, a.adapter, a.adapter_config, a.owner_user_id,
    a.invocation_rule, a.invocation_user_ids, a.max_concurrent_runs, a.run_timeout,
    a.idle_timeout, a.created_at, a.runtime_id,
    coalesce(t.presence_expires_at > (SELECT clock()), false) AS runtime_present,
    coalesce(t.unusable_reason, '') AS runtime_unusable_reason, a.state, a.pause_reason,
    a.manager_agent_id, a.timer_enabled, a.timer_interval, a.last_timer_fired_at,
    a.skip_timer_without_work, a.wake_on_demand, a.max_daily_runs, a.max_daily_cost_cents,
    a.cooldown, a.start_limit, a.max_turn_continuations, a.max_turn_delay, a.revision,
    a.updated_at
FROM agents a LEFT JOIN runtimes t ON t.runtime_id = a.runtime_id
WHERE a.agent_id = ANY($1::uuid[]);

-- name: show_agents
-- Agents as they are shown, with what their runs say of them. $1 ids
SELECT a.agent_id, a.workspace_id, a.name, a.adapter, a.adapter_config, a.owner_user_id,
    a.invocation_rule, a.invocation_user_ids, a.max_concurrent_runs, a.run_timeout,
    a.idle_timeout, a.created_at, a.runtime_id,
    coalesce(t.presence_expires_at > (SELECT clock()), false) AS runtime_present,
    coalesce(t.unusable_reason, '') AS runtime_unusable_reason, a.state, a.pause_reason,
    a.manager_agent_id, a.timer_enabled, a.timer_interval, a.last_timer_fired_at,
    a.skip_timer_without_work, a.wake_on_demand, a.max_daily_runs, a.max_daily_cost_cents,
    a.cooldown, a.start_limit, a.max_turn_continuations, a.max_turn_delay, a.revision,
    a.updated_at,
    EXISTS (SELECT FROM runs r WHERE r.agent_id = a.agent_id AND r.occupied) AS busy,
    coalesce((
        SELECT r.state IN ('failed', 'timed_out') FROM runs r
        WHERE r.agent_id = a.agent_id AND r.finished_at IS NOT NULL
        ORDER BY r.run_id DESC LIMIT 1
    ), false) AS last_run_failed
FROM agents a LEFT JOIN runtimes t ON t.runtime_id = a.runtime_id
WHERE a.agent_id = ANY($1::uuid[])
ORDER BY a.name;

-- name: list_agent_ids
-- A page of a workspace's agents by name. $1 workspace, $2 name after which it starts, $3 limit
SELECT agent_id, name FROM agents
WHERE workspace_id = $1 AND ($2::text IS NULL OR name > $2)
ORDER BY name
LIMIT $3;

-- name: lock_agents
-- Wakes of one agent that may join each other are placed one after the other. $1 ids
SELECT agent_id, max_concurrent_runs FROM agents
WHERE agent_id = ANY($1::uuid[])
ORDER BY agent_id
FOR NO KEY UPDATE;

-- name: agent_load
-- How busy an agent is. $1 agent
SELECT
    (SELECT count(*) FROM runs WHERE agent_id = $1 AND occupied) AS occupied,
    (SELECT count(*) FROM runs r JOIN agents a ON a.agent_id = r.agent_id
     WHERE r.workspace_id = a.workspace_id AND r.agent_id = $1 AND r.state = 'queued') AS queued;
