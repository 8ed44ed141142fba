-- name: due_timers
-- Agents of active workspaces whose timer is due, the longest due first. `base` is when it fired
-- last, or the agent was made. $1 after this moment since 2000 (interval), $2 and this agent,
-- $3 limit
SELECT a.agent_id, a.workspace_id, coalesce(a.last_timer_fired_at, a.created_at) AS base,
    coalesce(a.last_timer_fired_at, a.created_at) - timestamptz '2000-01-01 00:00:00+00'
        + a.timer_interval AS due
FROM agents a
WHERE a.timer_enabled AND a.timer_interval > '0' AND a.state = 'active'
    AND (coalesce(a.last_timer_fired_at, a.created_at) - timestamptz '2000-01-01 00:00:00+00'
        + a.timer_interval) <= (SELECT clock()) - timestamptz '2000-01-01 00:00:00+00'
    AND ((coalesce(a.last_timer_fired_at, a.created_at) - timestamptz '2000-01-01 00:00:00+00'
        + a.timer_interval), a.agent_id) > ($1::interval, $2::uuid)
    AND EXISTS (
        SELECT FROM workspaces w WHERE w.workspace_id = a.workspace_id AND w.status = 'active'
    )
ORDER BY (coalesce(a.last_timer_fired_at, a.created_at) - timestamptz '2000-01-01 00:00:00+00'
    + a.timer_interval), a.agent_id
LIMIT $3;

-- name: timers_fired
-- The slots are used, each once: no row where it is not as it was seen. $1 agents, $2 bases
UPDATE agents a
SET last_timer_fired_at = clock()
FROM unnest($1::uuid[], $2::timestamptz[]) AS f (agent_id, base)
WHERE a.agent_id = f.agent_id AND coalesce(a.last_timer_fired_at, a.created_at) = f.base;
