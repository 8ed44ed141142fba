-- name: insert_autopilot
-- A new rule, in force at once, with its first version.
-- $1 id, $2 workspace_id, $3 title, $4 prompt, $5 issue_title_template, $6 agent_id,
-- $7 execution_mode, $8 status, $9 creator_user_id, $10 rule_version_id, $11 rule_sequence,
-- $12 created_at
INSERT INTO autopilots
    (id, workspace_id, title, prompt, issue_title_template, agent_id, execution_mode, status,
    creator_user_id, rule_version_id, rule_sequence, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12);

-- name: get_autopilot
-- One rule. $1 id
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, execution_mode, status,
    creator_user_id, rule_version_id, rule_sequence, created_at, updated_at
FROM autopilots
WHERE id = $1;

-- name: lock_autopilots
-- Edits of one rule follow each other. $1 ids
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, execution_mode, status,
    creator_user_id, rule_version_id, rule_sequence, created_at, updated_at
FROM autopilots
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: list_autopilots
-- Newest first. $1 workspace_id, $2 before id or null, $3 limit
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, execution_mode, status,
    creator_user_id, rule_version_id, rule_sequence, created_at, updated_at
FROM autopilots
WHERE workspace_id = $1 AND ($2::uuid IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3;

-- name: update_autopilot
-- An edit, already locked; the sequence read under the lock guards against a lost lock.
-- $1 id, $2 the sequence before, $3 status, $4 rule_version_id, $5 rule_sequence, $6 updated_at
UPDATE autopilots
SET status = $3, rule_version_id = $4, rule_sequence = $5, updated_at = $6
WHERE id = $1 AND rule_sequence = $2;

-- name: insert_rule_version
-- Append-only. $1 id, $2 autopilot_id, $3 workspace_id, $4 sequence, $5 change,
-- $6 publisher_user_id, $7 title, $8 prompt, $9 issue_title_template, $10 agent_id,
-- $11 execution_mode, $12 status, $13 triggers, $14 created_at
INSERT INTO rule_versions
    (id, autopilot_id, workspace_id, sequence, change, publisher_user_id, title, prompt,
    issue_title_template, agent_id, execution_mode, status, triggers, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: latest_rule_version
-- Who published what is in force, for Explain. $1 autopilot_id
SELECT id, sequence, change, publisher_user_id, created_at
FROM rule_versions
WHERE autopilot_id = $1
ORDER BY sequence DESC
LIMIT 1;

-- name: database_now
-- The clock that rules get as a parameter.
SELECT clock();
