-- name: insert_autopilot
-- A new rule, in force at once, with its first version.
-- $1 id, $2 workspace_id, $3 title, $4 prompt, $5 issue_title_template, $6 agent_id,
-- $7 squad_id, $8 project_id, $9 execution_mode, $10 overlap_policy, $11 status,
-- $12 creator_user_id, $13 rule_version_id, $14 rule_sequence, $15 revision, $16 created_at
INSERT INTO autopilots
    (id, workspace_id, title, prompt, issue_title_template, agent_id, squad_id, project_id,
    execution_mode, overlap_policy, status, creator_user_id, rule_version_id, rule_sequence,
    revision, active_since, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, $16);

-- name: get_autopilot
-- One rule. $1 id
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, squad_id, project_id,
    execution_mode, overlap_policy, status, pause_reason, creator_user_id, rule_version_id,
    rule_sequence, revision, active_since, created_at, updated_at
FROM autopilots
WHERE id = $1;

-- name: lock_autopilots
-- Edits of one rule follow each other. $1 ids
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, squad_id, project_id,
    execution_mode, overlap_policy, status, pause_reason, creator_user_id, rule_version_id,
    rule_sequence, revision, active_since, created_at, updated_at
FROM autopilots
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: list_autopilots
-- Newest first. $1 workspace_id, $2 statuses, $3 before id or null, $4 limit
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, squad_id, project_id,
    execution_mode, overlap_policy, status, pause_reason, creator_user_id, rule_version_id,
    rule_sequence, revision, active_since, created_at, updated_at
FROM autopilots
WHERE workspace_id = $1 AND status = ANY($2::text[]) AND ($3::uuid IS NULL OR id < $3)
ORDER BY id DESC
LIMIT $4;

-- name: update_autopilot
-- An edit, already locked; the revision read under the lock guards against a lost lock.
-- $1 id, $2 the revision before, $3 title, $4 prompt, $5 issue_title_template, $6 agent_id,
-- $7 squad_id, $8 project_id, $9 execution_mode, $10 overlap_policy, $11 status, $12 pause_reason,
-- $13 rule_version_id, $14 rule_sequence, $15 revision, $16 active_since, $17 updated_at
UPDATE autopilots
SET title = $3, prompt = $4, issue_title_template = $5, agent_id = $6, squad_id = $7,
    project_id = $8, execution_mode = $9, overlap_policy = $10, status = $11, pause_reason = $12,
    rule_version_id = $13, rule_sequence = $14, revision = $15, active_since = $16,
    updated_at = $17
WHERE id = $1 AND revision = $2;

-- name: insert_rule_version
-- Append-only. $1 id, $2 autopilot_id, $3 workspace_id, $4 sequence, $5 change,
-- $6 publisher_user_id, $7 title, $8 prompt, $9 issue_title_template, $10 agent_id, $11 squad_id,
-- $12 project_id, $13 execution_mode, $14 overlap_policy, $15 status, $16 triggers, $17 created_at
INSERT INTO rule_versions
    (id, autopilot_id, workspace_id, sequence, change, publisher_user_id, title, prompt,
    issue_title_template, agent_id, squad_id, project_id, execution_mode, overlap_policy, status,
    triggers, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);

-- name: list_rule_versions
-- What a rule has said, newest first. $1 autopilot_id, $2 before sequence or null, $3 limit
SELECT id, autopilot_id, workspace_id, sequence, change, publisher_user_id, title, prompt,
    issue_title_template, agent_id, squad_id, project_id, execution_mode, overlap_policy, status,
    triggers, created_at
FROM rule_versions
WHERE autopilot_id = $1 AND ($2::integer IS NULL OR sequence < $2)
ORDER BY sequence DESC
LIMIT $3;

-- name: get_rule_version
-- What a rule said when a run of it was admitted. $1 id
SELECT id, autopilot_id, workspace_id, sequence, change, publisher_user_id, title, prompt,
    issue_title_template, agent_id, squad_id, project_id, execution_mode, overlap_policy, status,
    triggers, created_at
FROM rule_versions
WHERE id = $1;

-- name: by_target
-- Rules in force that an agent, or a squad, works for, and the paused ones of a squad: resuming needs
-- a target, and an archived squad is none. All of them where neither is named.
-- $1 agent ids or null, $2 squad ids or null, $3 after id, $4 limit, $5 workspace_id or null
SELECT id, workspace_id, title, prompt, issue_title_template, agent_id, squad_id, project_id,
    execution_mode, overlap_policy, status, pause_reason, creator_user_id, rule_version_id,
    rule_sequence, revision, active_since, created_at, updated_at
FROM autopilots
WHERE id > $3 AND ($5::uuid IS NULL OR workspace_id = $5)
    AND (
        ($1::uuid[] IS NULL AND $2::uuid[] IS NULL
            AND (status = 'active' OR (status = 'paused' AND squad_id IS NOT NULL)))
        OR (status = 'active' AND agent_id = ANY($1::uuid[]))
        OR (status IN ('active', 'paused') AND squad_id = ANY($2::uuid[]))
    )
ORDER BY id
LIMIT $4;

-- name: squads_in_use
-- The squads of a workspace that rules in force are for. $1 workspace_id
SELECT DISTINCT squad_id
FROM autopilots
WHERE squad_id IS NOT NULL AND status = 'active' AND workspace_id = $1;

-- name: last_runs
-- The newest run of each rule, for display. $1 autopilot_ids
SELECT i.id AS autopilot_id, r.id, r.state, r.created_at
FROM unnest($1::uuid[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT id, state, created_at FROM runs WHERE autopilot_id = i.id ORDER BY id DESC LIMIT 1
) r;

-- name: database_now
-- The clock that rules get as a parameter.
SELECT clock();
