-- The rule plane: workspaces and members, rules with their triggers and versions, and every run.

-- The clock of every predicate and column. A test moves it through one setting of the session.
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp()
        + coalesce(nullif(current_setting('reveille.clock_offset', true), ''), '0')::interval
$$;

-- Tenants. Heartbeat keeps a copy: it is sent while synced_revision lags behind. What it said when
-- it refused the row stands in sync_error until it takes it.
CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    issue_prefix text NOT NULL CHECK (issue_prefix ~ '^[A-Z]{2,8}$'),
    attribution_fail_closed boolean NOT NULL,
    default_responsible_user_id text NOT NULL,
    revision bigint NOT NULL DEFAULT 1,
    synced_revision bigint NOT NULL DEFAULT 0,
    sync_error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT workspaces_issue_prefix_key UNIQUE (issue_prefix)
);
CREATE INDEX workspaces_unsynced_idx ON workspaces (id) WHERE revision <> synced_revision;

CREATE TABLE members (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    user_id text NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    role text NOT NULL CHECK (role IN ('member', 'admin', 'owner')),
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_user_idx ON members (user_id, workspace_id);

-- Rules as they are in force. rule_sequence counts the versions and makes the etag.
CREATE TABLE autopilots (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    title text NOT NULL,
    prompt text NOT NULL,
    issue_title_template text NOT NULL,
    agent_id uuid NOT NULL,
    execution_mode text NOT NULL CHECK (execution_mode IN ('run_only', 'create_issue')),
    status text NOT NULL CHECK (status IN ('active', 'paused')),
    creator_user_id text NOT NULL,
    rule_version_id uuid NOT NULL,
    rule_sequence integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock()
);
CREATE INDEX autopilots_workspace_idx ON autopilots (workspace_id, id DESC);

-- What sets a rule off. The scheduler (schedule) or the gateway (webhook) is sent the current row
-- while synced_revision lags behind; a deleted row stays, so that the deletion can be sent too.
-- A refusal stands in sync_error until the row is taken.
-- Of a webhook's address only the hash is kept.
CREATE TABLE triggers (
    id uuid PRIMARY KEY,
    autopilot_id uuid NOT NULL REFERENCES autopilots (id),
    workspace_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('schedule', 'webhook')),
    enabled boolean NOT NULL,
    label text NOT NULL,
    cron text,
    time_zone text,
    effective_from timestamptz NOT NULL DEFAULT clock(),
    provider text,
    event_filters jsonb,
    max_body_bytes integer,
    token_sha256 bytea CHECK (octet_length(token_sha256) = 32),
    previous_token_sha256 bytea CHECK (octet_length(previous_token_sha256) = 32),
    previous_token_expires_at timestamptz,
    publisher_user_id text,
    revision bigint NOT NULL DEFAULT 1,
    synced_revision bigint NOT NULL DEFAULT 0,
    sync_error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock(),
    deleted_at timestamptz,
    CONSTRAINT triggers_config_check CHECK (
        CASE kind
            WHEN 'schedule' THEN
                cron IS NOT NULL AND time_zone IS NOT NULL
                AND provider IS NULL AND token_sha256 IS NULL
            ELSE
                cron IS NULL AND provider IS NOT NULL AND event_filters IS NOT NULL
                AND max_body_bytes IS NOT NULL AND token_sha256 IS NOT NULL
        END
    ),
    CONSTRAINT triggers_grace_check CHECK (
        (previous_token_sha256 IS NULL) = (previous_token_expires_at IS NULL)
    )
);
CREATE INDEX triggers_autopilot_idx ON triggers (autopilot_id, id);
CREATE UNIQUE INDEX triggers_token_key ON triggers (token_sha256) WHERE token_sha256 IS NOT NULL;
CREATE INDEX triggers_unsynced_idx ON triggers (kind, id) WHERE revision <> synced_revision;

-- What a rule said at each moment, and who published it. Written once: see the REVOKE below.
-- Without references: the record outlives what it is about.
CREATE TABLE rule_versions (
    id uuid PRIMARY KEY,
    autopilot_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    sequence integer NOT NULL,
    change text NOT NULL,
    publisher_user_id text NOT NULL,
    title text NOT NULL,
    prompt text NOT NULL,
    issue_title_template text NOT NULL,
    agent_id uuid NOT NULL,
    execution_mode text NOT NULL,
    status text NOT NULL,
    triggers jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT rule_versions_sequence_key UNIQUE (autopilot_id, sequence)
);
REVOKE UPDATE, DELETE, TRUNCATE ON rule_versions FROM reveille_autopilot_app;
COMMENT ON TABLE rule_versions IS 'append-only: what was published is never edited';

-- Every run: the intent, frozen at admission, and its one outcome. Rows are never replaced; a run
-- that was given up only hands back its slot (planned_at, delivery_id) for a clean one.
CREATE TABLE runs (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    autopilot_id uuid NOT NULL,
    trigger_id uuid,
    source text NOT NULL CHECK (source IN ('schedule', 'webhook', 'manual', 'api')),
    state text NOT NULL CHECK (
        state IN (
            'pending', 'issue_created', 'running', 'completed', 'failed', 'skipped', 'cancelled'
        )
    ),
    occurrence_key text NOT NULL CHECK (char_length(occurrence_key) <= 512),
    planned_at timestamptz,
    delivery_id uuid,
    given_up_planned_at timestamptz,
    given_up_delivery_id uuid,
    given_up_at timestamptz,
    execution_mode text NOT NULL CHECK (execution_mode IN ('run_only', 'create_issue')),
    agent_id uuid NOT NULL,
    rule_version_id uuid NOT NULL,
    title text NOT NULL,
    prompt text NOT NULL,
    originator_user_id text,
    accountable_user_id text,
    attribution_source text CHECK (
        attribution_source IN ('direct_human', 'trigger_owner', 'rule_owner', 'owner_fallback')
    ),
    reason text,
    message text NOT NULL DEFAULT '',
    wakeup_id uuid,
    issue_id uuid,
    result bytea,
    content_type text NOT NULL DEFAULT '',
    payload bytea,
    -- What a batch is measured by, without reading the bytes.
    payload_bytes integer NOT NULL GENERATED ALWAYS AS (coalesce(octet_length(payload), 0)) STORED,
    payload_facts jsonb NOT NULL DEFAULT '{}',
    payload_omitted boolean NOT NULL DEFAULT false,
    payload_ready boolean NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    dispatch_deadline_at timestamptz NOT NULL,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    request_fingerprint bytea,
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    finished_at timestamptz,
    CONSTRAINT runs_occurrence_key_key UNIQUE (occurrence_key),
    CONSTRAINT runs_finished_check CHECK (
        (state IN ('completed', 'failed', 'skipped', 'cancelled')) = (finished_at IS NOT NULL)
    ),
    -- An open run is always on somebody's list: that is how every run comes to an end.
    CONSTRAINT runs_due_check CHECK ((finished_at IS NULL) = (next_attempt_at IS NOT NULL)),
    CONSTRAINT runs_originator_check CHECK (
        originator_user_id IS NULL OR originator_user_id = accountable_user_id
    ),
    CONSTRAINT runs_attribution_check CHECK (
        (accountable_user_id IS NULL) = (attribution_source IS NULL)
    ),
    CONSTRAINT runs_slot_check CHECK (
        given_up_at IS NULL OR (state = 'failed' AND planned_at IS NULL AND delivery_id IS NULL)
    )
)
WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX runs_planned_key ON runs (trigger_id, planned_at)
    WHERE planned_at IS NOT NULL;
CREATE UNIQUE INDEX runs_delivery_key ON runs (delivery_id) WHERE delivery_id IS NOT NULL;
CREATE INDEX runs_due_idx ON runs (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX runs_workspace_idx ON runs (workspace_id, id DESC);
CREATE INDEX runs_autopilot_idx ON runs (autopilot_id, id DESC);
CREATE INDEX runs_trigger_idx ON runs (trigger_id, id DESC) WHERE trigger_id IS NOT NULL;
CREATE INDEX runs_wakeup_idx ON runs (wakeup_id) WHERE wakeup_id IS NOT NULL;
CREATE INDEX runs_issue_idx ON runs (issue_id) WHERE issue_id IS NOT NULL;

-- How far this service has followed the feeds of others. A consuming service's migration contains
-- this text as it stands.
CREATE TABLE cursors (
    source text PRIMARY KEY,
    cursor text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock()
);

-- What callers asked for by request_id, and the answers they got. A service's migration contains
-- this text as it stands; it needs the schema's clock() function.
CREATE TABLE requests (
    principal text NOT NULL,
    method text NOT NULL,
    request_id text NOT NULL CHECK (length(request_id) BETWEEN 1 AND 128),
    fingerprint bytea NOT NULL,
    -- NULL once an answer that had to be forgotten is.
    response bytea,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (principal, method, request_id)
);
CREATE INDEX requests_created_at ON requests (created_at);
CREATE INDEX requests_expires_at ON requests (expires_at) WHERE response IS NOT NULL;
