-- name: load_rules
-- Everything the gate judges by, for a batch, in one snapshot; rows that do not exist are null.
-- In subqueries of their own the values change no plan, and it is made once. With them comes which
-- occurrences have made a run already: mostly none.
-- $1 trigger_ids, $2 autopilot_ids (null: the trigger's), $3 occurrence_keys
SELECT clock() AS now,
    ARRAY(
        SELECT r.occurrence_key FROM runs r WHERE r.occurrence_key = ANY((SELECT $3::text[])::text[])
    ) AS taken,
    t.id AS t_id, t.autopilot_id AS t_autopilot_id, t.workspace_id AS t_workspace_id,
    t.kind AS t_kind, t.enabled AS t_enabled, t.label AS t_label, t.cron AS t_cron,
    t.time_zone AS t_time_zone, t.run_at AS t_run_at, t.effective_from AS t_effective_from, t.provider AS t_provider,
    t.event_filters AS t_event_filters, t.max_body_bytes AS t_max_body_bytes, t.endpoint_options AS t_endpoint_options,
    t.publisher_user_id AS t_publisher_user_id, t.revision AS t_revision,
    t.synced_revision AS t_synced_revision, t.sync_error AS t_sync_error,
    t.created_at AS t_created_at, t.deleted_at AS t_deleted_at,
    a.id AS a_id, a.workspace_id AS a_workspace_id, a.title AS a_title, a.prompt AS a_prompt,
    a.issue_title_template AS a_issue_title_template, a.agent_id AS a_agent_id,
    a.squad_id AS a_squad_id, a.project_id AS a_project_id,
    a.execution_mode AS a_execution_mode, a.overlap_policy AS a_overlap_policy,
    a.status AS a_status, a.pause_reason AS a_pause_reason, a.revision AS a_revision,
    a.active_since AS a_active_since, a.creator_user_id AS a_creator_user_id, a.rule_version_id AS a_rule_version_id,
    a.rule_sequence AS a_rule_sequence, a.created_at AS a_created_at,
    a.updated_at AS a_updated_at,
    w.attribution_fail_closed AS fail_closed, w.quota_action, w.quota_limit, w.quota_period,
    v.publisher_user_id AS rule_publisher,
    tm.user_id IS NOT NULL AS trigger_publisher_active,
    vm.user_id IS NOT NULL AS rule_publisher_active
FROM unnest((SELECT $1::uuid[]), (SELECT $2::uuid[])) WITH ORDINALITY
    AS i (trigger_id, autopilot_id, ordinal)
LEFT JOIN triggers t ON t.id = i.trigger_id
LEFT JOIN autopilots a ON a.id = coalesce(i.autopilot_id, t.autopilot_id)
LEFT JOIN workspaces w ON w.id = a.workspace_id
LEFT JOIN rule_versions v ON v.id = a.rule_version_id
LEFT JOIN members tm ON tm.workspace_id = a.workspace_id AND tm.user_id = t.publisher_user_id
LEFT JOIN members vm ON vm.workspace_id = a.workspace_id AND vm.user_id = v.publisher_user_id
ORDER BY i.ordinal;

-- name: find_runs_by_key
-- The runs that occurrences have made already. $1 occurrence_keys
SELECT id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key,
    coalesce(planned_at, given_up_planned_at) AS planned_at,
    coalesce(delivery_id, given_up_delivery_id) AS delivery_id, given_up_at, execution_mode,
    agent_id, squad_id, project_id, quota_period_start, rule_version_id, title, prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, wakeup_id, issue_id, result, payload_ready,
    payload_bytes, attempts,
    next_attempt_at, dispatch_deadline_at, cancel_requested_at, cancel_requested_by,
    request_fingerprint, trace_carrier, created_at, finished_at
FROM runs
WHERE occurrence_key = ANY($1::text[]);

-- name: insert_runs
-- Admits a batch. Another admission of the same occurrence may have been first: then nothing is
-- inserted for it, and the caller reads what was.
-- $1 id, $2 workspace_id, $3 autopilot_id, $4 trigger_id, $5 source, $6 state, $7 occurrence_key,
-- $8 planned_at, $9 delivery_id, $10 execution_mode, $11 agent_id, $12 rule_version_id, $13 title,
-- $14 prompt, $15 originator_user_id, $16 accountable_user_id, $17 attribution_source, $18 reason,
-- $19 message, $20 content_type, $21 payload, $22 payload_facts, $23 payload_ready,
-- $24 next_attempt_at, $25 dispatch_deadline_at, $26 request_fingerprint, $27 trace_carrier,
-- $28 created_at, $29 finished_at, $30 squad_id, $31 project_id, $32 quota_period_start
INSERT INTO runs
    (id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key, planned_at,
    delivery_id, execution_mode, agent_id, rule_version_id, title, prompt, originator_user_id,
    accountable_user_id, attribution_source, reason, message, content_type, payload,
    payload_facts, payload_ready, next_attempt_at, dispatch_deadline_at, request_fingerprint,
    trace_carrier, created_at, finished_at, squad_id, project_id, quota_period_start)
SELECT i.id, i.workspace_id, i.autopilot_id, i.trigger_id, i.source, i.state, i.occurrence_key,
    i.planned_at, i.delivery_id, i.execution_mode, i.agent_id, i.rule_version_id, i.title,
    i.prompt, i.originator_user_id, i.accountable_user_id, i.attribution_source, i.reason,
    i.message, i.content_type, i.payload, i.payload_facts, i.payload_ready, i.next_attempt_at,
    i.dispatch_deadline_at, i.request_fingerprint, i.trace_carrier, i.created_at, i.finished_at,
    i.squad_id, i.project_id, i.quota_period_start
FROM unnest(
    $1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[],
    $8::timestamptz[], $9::uuid[], $10::text[], $11::uuid[], $12::uuid[], $13::text[],
    $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
    $21::bytea[], $22::jsonb[], $23::boolean[], $24::timestamptz[], $25::timestamptz[],
    $26::bytea[], $27::jsonb[], $28::timestamptz[], $29::timestamptz[], $30::uuid[], $31::uuid[],
    $32::timestamptz[]
) AS i (
    id, workspace_id, autopilot_id, trigger_id, source, state, occurrence_key, planned_at,
    delivery_id, execution_mode, agent_id, rule_version_id, title, prompt, originator_user_id,
    accountable_user_id, attribution_source, reason, message, content_type, payload,
    payload_facts, payload_ready, next_attempt_at, dispatch_deadline_at, request_fingerprint,
    trace_carrier, created_at, finished_at, squad_id, project_id, quota_period_start
)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: store_payloads
-- The bodies of admitted deliveries, once: a run that has its body or its outcome keeps it, and one
-- that waits its turn goes on waiting.
-- $1 run_ids, $2 delivery_ids, $3 content_types, $4 bodies, $5 facts, $6 omitted,
-- $7 how soon the sweep looks
UPDATE runs r
SET content_type = i.content_type, payload = i.body, payload_facts = i.facts,
    payload_omitted = i.omitted, payload_ready = true,
    next_attempt_at = CASE
        WHEN r.state = 'pending' THEN clock() + $7::interval ELSE r.next_attempt_at
    END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[], $5::jsonb[], $6::boolean[])
    AS i (id, delivery_id, content_type, body, facts, omitted)
WHERE r.id = i.id AND r.delivery_id = i.delivery_id AND r.state IN ('pending', 'buffered')
    AND NOT r.payload_ready
RETURNING r.id;
