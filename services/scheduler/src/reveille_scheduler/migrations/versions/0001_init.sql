-- Jobs, the scopes they are planned for, and the ledger of their occurrences.

CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() + coalesce(nullif(current_setting('reveille.clock_offset', true), ''), '0')::interval $$;

CREATE TABLE jobs (
    name text PRIMARY KEY CHECK (name ~ '^[a-z0-9_]{1,100}$'),
    handler text NOT NULL,
    catch_up_window interval NOT NULL,
    max_lateness interval,
    run_timeout interval NOT NULL,
    stale_timeout interval NOT NULL CHECK (stale_timeout > run_timeout),
    heartbeat_interval interval NOT NULL,
    max_attempts integer NOT NULL CHECK (max_attempts >= 1),
    retry_backoff interval[] NOT NULL,
    retry_deadline interval NOT NULL,
    schedule_delay interval NOT NULL,
    catch_up text NOT NULL CHECK (catch_up IN ('latest_only', 'every_plan')),
    max_plans_per_tick integer NOT NULL CHECK (max_plans_per_tick >= 0),
    allow_stale_reentry boolean NOT NULL,
    plans_per_scope integer NOT NULL CHECK (plans_per_scope >= 1),
    jitter interval NOT NULL,
    -- Set by operators, kept when the owner registers again.
    paused_at timestamptz,
    pause_note text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock()
);

-- What an owner wants planned. A deleted scope stays as a tombstone: it refuses late older revisions.
CREATE TABLE scopes (
    id uuid PRIMARY KEY,
    job_name text NOT NULL REFERENCES jobs (name),
    kind text NOT NULL CHECK (length(kind) BETWEEN 1 AND 100),
    scope_id text NOT NULL CHECK (length(scope_id) BETWEEN 1 AND 200),
    source text NOT NULL CHECK (source IN ('cron', 'cadence', 'once', 'hook')),
    cron text NOT NULL DEFAULT '',
    time_zone text NOT NULL DEFAULT '',
    cadence interval CHECK ((source = 'cadence') = (cadence IS NOT NULL)),
    run_at timestamptz CHECK ((source = 'once') = (run_at IS NOT NULL)),
    -- Overrides of the job's rules; NULL = as the job says. A lateness of zero sets no limit.
    catch_up text CHECK (catch_up IN ('latest_only', 'every_plan')),
    max_lateness interval,
    enabled boolean NOT NULL,
    revision bigint NOT NULL,
    effective_from timestamptz NOT NULL,
    -- A hint: the first instant at which there can be something to plan. The ledger decides.
    next_plan_at timestamptz,
    -- Why planning gave up on it until the next edit.
    plan_error text NOT NULL DEFAULT '',
    deleted_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (job_name, kind, scope_id)
) WITH (fillfactor = 80);

CREATE INDEX scopes_due ON scopes (job_name, next_plan_at, id)
    WHERE enabled AND deleted_at IS NULL AND source <> 'hook';
CREATE INDEX scopes_hooks_due ON scopes (job_name, next_plan_at, id)
    WHERE enabled AND deleted_at IS NULL AND source = 'hook';
CREATE INDEX scopes_deleted ON scopes (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX scopes_by_owner ON scopes (scope_id);

-- One row is one planned occurrence: lock, lease, retry state, audit and watermark at once.
CREATE TABLE executions (
    id uuid PRIMARY KEY,
    job_name text NOT NULL,
    scope_kind text NOT NULL,
    scope_id text NOT NULL,
    plan_time timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'success', 'failed', 'skipped')),
    -- Attempts that count; one that was given back does not.
    attempt integer NOT NULL CHECK (attempt >= 0),
    max_attempts integer NOT NULL CHECK (max_attempts >= attempt),
    give_backs integer NOT NULL DEFAULT 0 CHECK (give_backs >= 0),
    -- When it is claimed again: after a failure, or because an operator asked for a missed one.
    next_retry_at timestamptz CHECK (next_retry_at IS NULL OR state IN ('failed', 'skipped')),
    -- No attempt begins later.
    retry_until timestamptz NOT NULL,
    -- An operator asked: neither a newer rule nor a switched off scope overtakes it.
    requested_at timestamptz,
    runner_id text NOT NULL DEFAULT '',
    lease_token uuid,
    stale_after timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '' CHECK (length(message) <= 4000),
    result jsonb NOT NULL DEFAULT '{}',
    collapsed integer NOT NULL DEFAULT 0 CHECK (collapsed >= 0),
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    -- The distributed lock of an occurrence.
    CONSTRAINT executions_occurrence UNIQUE (job_name, scope_kind, scope_id, plan_time),
    -- The token is the fence, so it exists exactly while somebody works.
    CHECK ((lease_token IS NOT NULL) = (state = 'running')),
    CHECK ((stale_after IS NOT NULL) = (state = 'running')),
    CHECK ((finished_at IS NULL) = (state = 'running'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

CREATE INDEX executions_running ON executions (stale_after) WHERE state = 'running';
CREATE INDEX executions_running_scope ON executions (job_name, scope_kind, scope_id) WHERE state = 'running';
CREATE INDEX executions_retry ON executions (job_name, next_retry_at, plan_time)
    WHERE next_retry_at IS NOT NULL;
-- Retention walks the oldest ends.
CREATE INDEX executions_finished ON executions (finished_at, id) WHERE state <> 'running';
-- What operators list: a job, a scope, and failures for triage.
CREATE INDEX executions_by_job ON executions (job_name, plan_time DESC, id DESC);
CREATE INDEX executions_by_scope ON executions (scope_id, plan_time DESC, id DESC);
CREATE INDEX executions_failed ON executions (plan_time DESC, id DESC) WHERE state = 'failed';

-- What callers asked for by request_id, and the answers they got.
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
