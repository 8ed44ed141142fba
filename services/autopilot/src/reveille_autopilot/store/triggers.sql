-- name: insert_trigger
-- A new trigger, with the hash of its address if it is a webhook.
-- $1 id, $2 autopilot_id, $3 workspace_id, $4 kind, $5 enabled, $6 label, $7 cron, $8 time_zone,
-- $9 provider, $10 event_filters, $11 max_body_bytes, $12 token_sha256, $13 publisher_user_id,
-- $14 run_at, $15 created_at, which is also published_at, and effective_from: an instant before it
-- does not count,
-- $16 endpoint_options
INSERT INTO triggers
    (id, autopilot_id, workspace_id, kind, enabled, label, cron, time_zone, provider,
    event_filters, max_body_bytes, token_sha256, publisher_user_id, run_at, created_at,
    effective_from, published_at, endpoint_options)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $15, $16);

-- name: update_trigger
-- An edit; the revision read under the rule's lock guards against a lost lock. Times before
-- effective_from do not count: it moves where a schedule changed or came back.
-- $1 id, $2 the revision before, $3 enabled, $4 label, $5 cron, $6 time_zone, $7 run_at,
-- $8 event_filters, $9 max_body_bytes, $10 effective_from, $11 endpoint_options
UPDATE triggers
SET enabled = $3, label = $4, cron = $5, time_zone = $6, run_at = $7, event_filters = $8,
    max_body_bytes = $9, effective_from = greatest(effective_from, $10), endpoint_options = $11,
    revision = revision + 1
WHERE id = $1 AND revision = $2 AND deleted_at IS NULL;

-- name: triggers_of
-- The triggers of many rules, for display. $1 autopilot_ids
SELECT id, autopilot_id, workspace_id, kind, enabled, label, cron, time_zone, run_at,
    effective_from, provider, event_filters, max_body_bytes, endpoint_options, publisher_user_id,
    revision,
    synced_revision, sync_error, created_at, deleted_at
FROM triggers
WHERE autopilot_id = ANY($1::uuid[]) AND deleted_at IS NULL
ORDER BY id;

-- name: get_trigger
-- One trigger, tombstones included. $1 id
SELECT id, autopilot_id, workspace_id, kind, enabled, label, cron, time_zone, run_at,
    effective_from, provider, event_filters, max_body_bytes, endpoint_options, publisher_user_id,
    revision,
    synced_revision, sync_error, created_at, deleted_at
FROM triggers
WHERE id = $1;

-- name: live_triggers
-- All triggers of a rule, for its snapshot and its edits. $1 autopilot_id
SELECT id, autopilot_id, workspace_id, kind, enabled, label, cron, time_zone, run_at,
    effective_from, provider, event_filters, max_body_bytes, endpoint_options, publisher_user_id,
    revision,
    synced_revision, sync_error, created_at, deleted_at
FROM triggers
WHERE autopilot_id = $1 AND deleted_at IS NULL
ORDER BY id;

-- name: count_live_triggers
-- How many triggers a rule has. $1 autopilot_id
SELECT count(*) FROM triggers WHERE autopilot_id = $1 AND deleted_at IS NULL;

-- name: list_triggers
-- Oldest first. $1 autopilot_id, $2 after id or null, $3 limit
SELECT id, autopilot_id, workspace_id, kind, enabled, label, cron, time_zone, run_at,
    effective_from, provider, event_filters, max_body_bytes, endpoint_options, publisher_user_id,
    revision,
    synced_revision, sync_error, created_at, deleted_at
FROM triggers
WHERE autopilot_id = $1 AND deleted_at IS NULL AND ($2::uuid IS NULL OR id > $2)
ORDER BY id
LIMIT $3;

-- name: restamp_triggers
-- The editor answers for these triggers from now on; nobody else has to be told. An edit that is
-- recorded late takes none from whoever came after it.
-- $1 autopilot_id, $2 one trigger or null for all, $3 publisher_user_id, $4 when it was edited,
-- $5 whether that was before now
UPDATE triggers
SET publisher_user_id = $3, published_at = $4
WHERE autopilot_id = $1 AND ($2::uuid IS NULL OR id = $2) AND deleted_at IS NULL
    AND (NOT $5 OR published_at IS NULL OR published_at <= $4);

-- name: touch_schedules
-- A rule was paused or resumed: its scopes are sent anew. What falls due before a resume does not
-- count. $1 autopilot_id, $2 effective_from
UPDATE triggers
SET revision = revision + 1, effective_from = greatest(effective_from, $2)
WHERE autopilot_id = $1 AND kind = 'schedule' AND deleted_at IS NULL;

-- name: delete_trigger
-- Leaves a tombstone, so that the deletion can be sent; the address is forgotten except for its
-- hash, which must not come back. $1 id, $2 deleted_at
UPDATE triggers
SET deleted_at = $2, revision = revision + 1, enabled = false,
    previous_token_sha256 = NULL, previous_token_expires_at = NULL
WHERE id = $1 AND deleted_at IS NULL;

-- name: rotate_token
-- A new address; the old one goes on for a while, if it was asked for.
-- $1 id, $2 token_sha256, $3 when the old one expires, or null for at once
UPDATE triggers
SET token_sha256 = $2,
    previous_token_sha256 = CASE WHEN $3::timestamptz IS NULL THEN NULL ELSE token_sha256 END,
    previous_token_expires_at = $3,
    revision = revision + 1
WHERE id = $1 AND kind = 'webhook' AND deleted_at IS NULL;

-- name: unsynced_scopes
-- Schedules whose present form the scheduler has not confirmed; enabled only while the rule is in
-- force. $1 after this id, $2 limit
SELECT t.id, t.cron, t.time_zone, t.run_at, t.enabled AND a.status = 'active' AS enabled,
    t.effective_from, t.revision, t.deleted_at IS NOT NULL AS deleted
FROM triggers t
JOIN autopilots a ON a.id = t.autopilot_id
WHERE t.revision <> t.synced_revision AND t.kind = 'schedule' AND t.id > $1
ORDER BY t.id
LIMIT $2;

-- name: unsynced_scopes_of
-- The same for some of them. $1 ids
SELECT t.id, t.cron, t.time_zone, t.run_at, t.enabled AND a.status = 'active' AS enabled,
    t.effective_from, t.revision, t.deleted_at IS NOT NULL AS deleted
FROM triggers t
JOIN autopilots a ON a.id = t.autopilot_id
WHERE t.revision <> t.synced_revision AND t.kind = 'schedule' AND t.id = ANY($1::uuid[]);

-- name: unsynced_endpoints
-- Webhooks whose present form the gateway has not confirmed. $1 after this id, $2 limit
SELECT id, workspace_id, token_sha256, previous_token_sha256, previous_token_expires_at, provider,
    max_body_bytes, endpoint_options, revision, deleted_at IS NOT NULL AS deleted
FROM triggers
WHERE revision <> synced_revision AND kind = 'webhook' AND id > $1
ORDER BY id
LIMIT $2;

-- name: unsynced_endpoints_of
-- The same for some of them. $1 ids
SELECT id, workspace_id, token_sha256, previous_token_sha256, previous_token_expires_at, provider,
    max_body_bytes, endpoint_options, revision, deleted_at IS NOT NULL AS deleted
FROM triggers
WHERE revision <> synced_revision AND kind = 'webhook' AND id = ANY($1::uuid[]);

-- name: mark_triggers_synced
-- Only the revision that was sent counts as confirmed: a newer one is sent again.
-- $1 ids, $2 revisions
UPDATE triggers t
SET synced_revision = i.revision, sync_error = ''
FROM unnest($1::uuid[], $2::bigint[]) AS i (id, revision)
WHERE t.id = i.id AND t.revision = i.revision;

-- name: note_triggers_refused
-- What the receiver said; it is about the revision that was sent, so a newer one is left alone.
-- $1 ids, $2 revisions, $3 causes
UPDATE triggers t
SET sync_error = i.cause
FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS i (id, revision, cause)
WHERE t.id = i.id AND t.revision = i.revision AND t.synced_revision <> i.revision;

-- name: trigger_sync_state
-- Whether the present form is confirmed. $1 id
SELECT revision = synced_revision FROM triggers WHERE id = $1;
