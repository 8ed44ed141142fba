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
-- Admits a batch. Another admission of the same occurrence may have been first, or its rule may have
-- been edited since it was read: then nothing is inserted for it, and the caller looks again. Of a
-- burst most runs are alike but for who they are: what they share is sent once, as their form. Which
-- versions are in force is read once for all, in a subquery that changes no plan: it is made once.
-- $1 id, $2 occurrence_key, $3 delivery_id, $4 request_fingerprint, $5 trace_carrier, $6 form;
-- and of each form: $7 workspace_id, $8 autopilot_id, $9 trigger_id, $10 source, $11 state,
-- $12 planned_at, $13 execution_mode, $14 agent_id, $15 squad_id, $16 project_id,
-- $17 rule_version_id, $18 title, $19 prompt, $20 originator_user_id, $21 accountable_user_id,
-- $22 attribution_source, $23 reason, $24 message, $25 payload_ready, $26 next_attempt_at,
-- $27 dispatch_deadline_at, $28 created_at, $29 finished_at, $30 quota_period_start,
-- $31 content_type, $32 payload, $33 payload_facts
INSERT INTO runs
    (id, occurrence_key, delivery_id, request_fingerprint, trace_carrier, workspace_id,
    autopilot_id, trigger_id, source, state, planned_at, execution_mode, agent_id, squad_id,
    project_id, rule_version_id, title, prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, payload_ready, next_attempt_at, dispatch_deadline_at,
    created_at, finished_at, quota_period_start, content_type, payload, payload_facts)
SELECT i.id, i.occurrence_key, i.delivery_id, i.request_fingerprint, i.trace_carrier,
    f.workspace_id, f.autopilot_id, f.trigger_id, f.source, f.state, f.planned_at,
    f.execution_mode, f.agent_id, f.squad_id, f.project_id, f.rule_version_id, f.title, f.prompt,
    f.originator_user_id, f.accountable_user_id, f.attribution_source, f.reason, f.message,
    f.payload_ready, f.next_attempt_at, f.dispatch_deadline_at, f.created_at, f.finished_at,
    f.quota_period_start, f.content_type, f.payload, f.payload_facts
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bytea[], $5::jsonb[], $6::integer[])
    WITH ORDINALITY
    AS i (id, occurrence_key, delivery_id, request_fingerprint, trace_carrier, form, place)
JOIN unnest(
    $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::timestamptz[], $13::text[],
    $14::uuid[], $15::uuid[], $16::uuid[], $17::uuid[], $18::text[], $19::text[], $20::text[],
    $21::text[], $22::text[], $23::text[], $24::text[], $25::boolean[], $26::timestamptz[],
    $27::timestamptz[], $28::timestamptz[], $29::timestamptz[], $30::timestamptz[], $31::text[],
    $32::bytea[], $33::jsonb[]
) WITH ORDINALITY AS f (
    workspace_id, autopilot_id, trigger_id, source, state, planned_at, execution_mode, agent_id,
    squad_id, project_id, rule_version_id, title, prompt, originator_user_id, accountable_user_id,
    attribution_source, reason, message, payload_ready, next_attempt_at, dispatch_deadline_at,
    created_at, finished_at, quota_period_start, content_type, payload, payload_facts, form
) ON f.form = i.form
WHERE f.rule_version_id = ANY(ARRAY(
        SELECT a.rule_version_id FROM autopilots a WHERE a.id = ANY((SELECT $8::uuid[])::uuid[])
    ))
ORDER BY i.place
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
