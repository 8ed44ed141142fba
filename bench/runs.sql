-- name: settled
-- How many wakeups under these keys have their outcome, and when the last one got it. $1 prefix
SELECT count(*) FILTER (WHERE finished_at IS NOT NULL) AS settled
FROM heartbeat.wakeup_requests WHERE occurrence_key LIKE $1 || '%';

-- name: ledger
-- What was written for the wakeups under these keys, and how long it took. $1 prefix
WITH wakes AS (
    SELECT wakeup_id, run_id, state, created_at, finished_at
    FROM heartbeat.wakeup_requests WHERE occurrence_key LIKE $1 || '%'
)
SELECT
    (SELECT count(*) FROM wakes WHERE state = 'completed') AS wakeups,
    (SELECT count(*) FROM heartbeat.wakeup_payloads p JOIN wakes w USING (wakeup_id)) AS payloads,
    (SELECT count(*) FROM heartbeat.runs r JOIN wakes w ON w.run_id = r.run_id
     WHERE r.state = 'succeeded' AND NOT r.occupied AND r.attempt = 1) AS runs,
    (SELECT count(*) FROM heartbeat.run_events e JOIN wakes w ON w.run_id = e.run_id) AS history,
    (SELECT count(*) FROM heartbeat.run_log_chunks c JOIN wakes w ON w.run_id = c.run_id) AS outputs,
    (SELECT count(*) FROM heartbeat.feed
     WHERE occurrence_key LIKE $1 || '%') AS told,
    (SELECT extract(epoch FROM max(finished_at) - min(created_at))::float8 FROM wakes) AS seconds;

-- name: agents
-- The agents of the bench, and their workspace.
SELECT agent_id, workspace_id FROM heartbeat.agents ORDER BY name;

-- name: add_workspace
-- A workspace with no service around it. $1 id
INSERT INTO heartbeat.workspaces (workspace_id, issue_prefix, revision) VALUES ($1, 'BEN', 1);

-- name: add_agents
-- So many agents in it. $1 how many, $2 slots of each
INSERT INTO heartbeat.agents (agent_id, workspace_id, name, adapter, owner_user_id, invocation_rule,
    max_concurrent_runs, run_timeout, idle_timeout)
SELECT uuidv7(), w.workspace_id, 'agent-' || n, 'echo', 'bench', 'workspace', $2, '1 hour',
    '15 minutes'
FROM heartbeat.workspaces w, generate_series(1, $1::integer) n;
