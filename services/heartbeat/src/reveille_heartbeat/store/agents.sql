-- name: insert_agent
-- A new agent; no row when the name is taken. $1 id, $2 workspace, $3 name, $4 adapter,
-- $5 adapter config, $6 owner, $7 invocation rule, $8 invocation users, $9 max concurrent runs,
-- $10 run timeout, $11 idle timeout, $12 start limit, $13 manager, $14 runtime, $15 timer enabled,
-- $16 timer interval, $17 skip timer without work, $18 wake on demand, $19 max daily runs,
-- $20 max daily cost, $21 cooldown, $22 max turn continuations, $23 max turn delay
INSERT INTO agents (agent_id, workspace_id, name, adapter, adapter_config, owner_user_id,
    invocation_rule, invocation_user_ids, max_concurrent_runs, run_timeout, idle_timeout,
    start_limit, manager_agent_id, runtime_id, timer_enabled, timer_interval,
    skip_timer_without_work, wake_on_demand, max_daily_runs, max_daily_cost_cents, cooldown,
    max_turn_continuations, max_turn_delay)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21, $22, $23)
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING agent_id;

-- name: update_agent
-- New settings for the form that was read; no row when it is another now. $1 id, $2 revision,
-- $3 name, $4 adapter, $5 adapter config, $6 owner, $7 invocation rule, $8 invocation users,
-- $9 max concurrent runs, $10 run timeout, $11 idle timeout, $12 start limit, $13 manager,
-- $14 runtime, $15 timer enabled, $16 timer interval, $17 skip timer without work,
-- $18 wake on demand, $19 max daily runs, $20 max daily cost, $21 cooldown,
-- $22 max turn continuations, $23 max turn delay
UPDATE agents
SET name = $3, adapter = $4, adapter_config = $5, owner_user_id = $6, invocation_rule = $7,
    invocation_user_ids = $8, max_concurrent_runs = $9, run_timeout = $10, idle_timeout = $11,
    start_limit = $12, manager_agent_id = $13, runtime_id = $14, timer_enabled = $15,
    timer_interval = $16, skip_timer_without_work = $17, wake_on_demand = $18,
    max_daily_runs = $19, max_daily_cost_cents = $20, cooldown = $21,
    max_turn_continuations = $22, max_turn_delay = $23, revision = revision + 1,
    updated_at = clock()
WHERE agent_id = $1 AND revision = $2;

-- name: move_agent
-- Pause, resume, archive; no row when it is in another state now. $1 id, $2 state it has,
-- $3 state it gets, $4 why it is paused
UPDATE agents
SET state = $3, pause_reason = $4,
    paused_at = CASE WHEN $3 = 'paused' THEN clock() END,
    archived_at = CASE WHEN $3 = 'archived' THEN clock() END,
    revision = revision + 1, updated_at = clock()
WHERE agent_id = $1 AND state = $2;

-- name: squads_led
-- What would have no leader without an agent. $1 agent
SELECT name FROM squads WHERE leader_agent_id = $1 AND state <> 'archived' ORDER BY name;

-- name: wakeups_at_work
-- Whose attempts hold something: never more than the agent may have at once. $1 agent
SELECT wakeup_id, issue_id FROM runs WHERE agent_id = $1 AND occupied;

-- name: open_wakeups_of_agent
-- What is still to come for an agent, while it is in the state that ends it; its lock is held.
-- $1 agent, $2 state, $3 after this id, $4 limit
SELECT w.wakeup_id, w.issue_id FROM wakeup_requests w
JOIN agents a ON a.agent_id = w.agent_id AND a.state = $2
WHERE w.agent_id = $1 AND w.finished_at IS NULL AND w.wakeup_id > $3
ORDER BY w.wakeup_id
LIMIT $4;

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

-- name: find_agents_in_workspaces
-- The same of agents as questions name them: a row for each, in order and in one snapshot. Of a
-- workspace that is not known, and of an agent that is not in the workspace, all is null.
-- In subqueries of their own the values change no plan, and it is made once.
-- $1 workspaces, $2 agents
SELECT w.workspace_id, w.issue_prefix, w.default_responsible_user_id, w.status,
    a.agent_id, a.name, a.adapter, a.adapter_config, a.owner_user_id,
    a.invocation_rule, a.invocation_user_ids, a.max_concurrent_runs, a.run_timeout,
    a.idle_timeout, a.created_at, a.runtime_id,
    coalesce(t.presence_expires_at > (SELECT clock()), false) AS runtime_present,
    coalesce(t.unusable_reason, '') AS runtime_unusable_reason, a.state, a.pause_reason,
    a.manager_agent_id, a.timer_enabled, a.timer_interval, a.last_timer_fired_at,
    a.skip_timer_without_work, a.wake_on_demand, a.max_daily_runs, a.max_daily_cost_cents,
    a.cooldown, a.start_limit, a.max_turn_continuations, a.max_turn_delay, a.revision,
    a.updated_at
FROM unnest((SELECT $1::uuid[]), (SELECT $2::uuid[])) WITH ORDINALITY
    AS i (workspace_id, agent_id, ordinal)
LEFT JOIN workspaces w ON w.workspace_id = i.workspace_id
LEFT JOIN agents a ON a.agent_id = i.agent_id AND a.workspace_id = w.workspace_id
LEFT JOIN runtimes t ON t.runtime_id = a.runtime_id
ORDER BY i.ordinal;

-- name: show_agents
-- Agents as they are shown, with what their runs say of them: a failure that is tried again, or
-- that is the provider's quota, is no error of the agent. $1 ids
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
        SELECT r.state IN ('failed', 'timed_out') AND r.failure_class <> 'quota'
            AND EXISTS (
                SELECT FROM wakeup_requests w
                WHERE w.wakeup_id = r.wakeup_id AND w.finished_at IS NOT NULL
            )
        FROM runs r
        WHERE r.agent_id = a.agent_id AND r.started_at IS NOT NULL AND r.finished_at IS NOT NULL
        ORDER BY r.started_at DESC LIMIT 1
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
