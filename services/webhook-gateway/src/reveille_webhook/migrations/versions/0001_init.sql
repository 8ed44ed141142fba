-- Endpoints that senders post to, their signing secrets, and what came in.

CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() + coalesce(nullif(current_setting('reveille.clock_offset', true), ''), '0')::interval $$;

-- The wanted state of a webhook trigger. A deleted endpoint stays as a tombstone: it refuses late
-- older revisions. The token itself is nowhere, only its hash.
CREATE TABLE endpoints (
    id uuid PRIMARY KEY,
    workspace_id uuid,
    token_sha256 bytea CHECK (length(token_sha256) = 32),
    previous_token_sha256 bytea CHECK (length(previous_token_sha256) = 32),
    previous_token_expires_at timestamptz,
    provider text,
    max_body_bytes integer CHECK (max_body_bytes > 0),
    revision bigint NOT NULL,
    deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    -- A tombstone keeps no credential; everything else has one.
    CHECK ((token_sha256 IS NULL) = (deleted_at IS NOT NULL)),
    CHECK (deleted_at IS NOT NULL
           OR (workspace_id IS NOT NULL AND provider IS NOT NULL AND max_body_bytes IS NOT NULL)),
    CHECK ((previous_token_sha256 IS NULL) = (previous_token_expires_at IS NULL)),
    CHECK (deleted_at IS NULL OR previous_token_sha256 IS NULL),
    CONSTRAINT endpoints_token UNIQUE (token_sha256)
);

CREATE INDEX endpoints_previous_token ON endpoints (previous_token_sha256)
WHERE previous_token_sha256 IS NOT NULL;

-- Several secrets of one endpoint may count at once, so that a sender can be moved to a new one.
CREATE TABLE endpoint_secrets (
    id uuid PRIMARY KEY,
    endpoint_id uuid NOT NULL REFERENCES endpoints (id),
    sealed bytea NOT NULL,
    hint text NOT NULL CHECK (length(hint) <= 4),
    expires_at timestamptz,
    last_used_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock()
);

CREATE INDEX endpoint_secrets_by_endpoint ON endpoint_secrets (endpoint_id);

-- One request that came in. Its body is bytes and is never re-serialised.
CREATE TABLE deliveries (
    id uuid PRIMARY KEY,
    endpoint_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    provider text NOT NULL,
    event text NOT NULL,
    action text NOT NULL,
    -- Every value that a filter may take for the action.
    actions jsonb NOT NULL DEFAULT '[]',
    dedupe_key text CHECK (length(dedupe_key) BETWEEN 1 AND 255),
    signature_state text NOT NULL
        CHECK (signature_state IN ('not_required', 'valid', 'invalid', 'missing')),
    state text NOT NULL CHECK (state IN ('queued', 'dispatched', 'ignored', 'rejected', 'failed')),
    reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '' CHECK (length(message) <= 4000),
    -- How autopilot judged it; NULL until it did.
    admission text CHECK (admission IN ('accepted', 'skipped', 'ignored', 'unknown_endpoint')),
    run_id uuid,
    content_type text NOT NULL DEFAULT '',
    headers jsonb NOT NULL DEFAULT '{}',
    body bytea NOT NULL,
    body_bytes integer NOT NULL,
    body_sha256 bytea NOT NULL CHECK (length(body_sha256) = 32),
    response_status integer NOT NULL,
    -- How often the sender sent it.
    attempt_count integer NOT NULL DEFAULT 1 CHECK (attempt_count >= 1),
    -- How often the worker took it up, less the times that something it needs was away.
    dispatch_attempts integer NOT NULL DEFAULT 0 CHECK (dispatch_attempts >= 0),
    give_backs integer NOT NULL DEFAULT 0 CHECK (give_backs >= 0),
    available_at timestamptz NOT NULL,
    lease_token uuid,
    lease_expires_at timestamptz,
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    received_at timestamptz NOT NULL,
    last_received_at timestamptz NOT NULL,
    -- Since when it waits to be dispatched: a delivery that is sent again after failing starts anew.
    queued_at timestamptz NOT NULL,
    finished_at timestamptz,
    CHECK ((finished_at IS NULL) = (state = 'queued')),
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
    CHECK (lease_token IS NULL OR state = 'queued')
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

-- Bodies are written once and read once: compressing them costs more than it saves.
ALTER TABLE deliveries ALTER COLUMN body SET STORAGE EXTERNAL;

-- A sender's id makes one delivery per endpoint. What came to nothing lets it go: it may be sent
-- again and then counts as new. A failed one with a run keeps it, and is taken up again.
CREATE UNIQUE INDEX deliveries_dedupe ON deliveries (endpoint_id, dedupe_key)
WHERE dedupe_key IS NOT NULL
  AND (state IN ('queued', 'dispatched') OR (state = 'failed' AND run_id IS NOT NULL));

CREATE INDEX deliveries_due ON deliveries (available_at)
WHERE state = 'queued' AND lease_token IS NULL;
CREATE INDEX deliveries_leased ON deliveries (lease_expires_at) WHERE lease_token IS NOT NULL;
CREATE INDEX deliveries_by_workspace ON deliveries (workspace_id, received_at DESC, id DESC);
CREATE INDEX deliveries_by_endpoint ON deliveries (endpoint_id, received_at DESC, id DESC);
CREATE INDEX deliveries_by_run ON deliveries (run_id) WHERE run_id IS NOT NULL;
