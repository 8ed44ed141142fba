-- name: holders_of_issues
-- The runs that hold issues. $1 issues
SELECT issue_id, run_id FROM runs WHERE issue_id = ANY($1::uuid[]) AND occupied;

-- name: runs_before
-- How many of its agent's runs have their turn before a run that is queued. $1 run
SELECT count(*) FROM runs r
JOIN runs q ON q.workspace_id = r.workspace_id AND q.agent_id = r.agent_id AND q.state = 'queued'
WHERE r.run_id = $1 AND r.state = 'queued'
    AND (q.ready_rank, q.priority, q.created_at, q.run_id)
        < (r.ready_rank, r.priority, r.created_at, r.run_id);
