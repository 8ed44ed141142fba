-- The execution plane: why an agent was woken, and what each attempt did.

-- The clock of every predicate; a test may move it for its own connections.
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp()
        + coalesce(nullif(current_setting('reveille.clock_offset', true), ''), '0')::interval
$$;

-- A copy: the autopilot service owns the workspaces, and older revisions change nothing here.
CREATE TABLE workspaces (
    workspace_id uuid PRIMARY KEY,
    issue_prefix text NOT NULL CHECK (issue_prefix ~ '^[A-Z][A-Z0-9]{0,9}$'),
    default_responsible_user_id text NOT NULL DEFAULT '',
    revision bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock()
);

-- Apart from the workspace's row, because claims lock that one.
CREATE TABLE issue_numbers (
    workspace_id uuid PRIMARY KEY REFERENCES workspaces,
    last_number bigint NOT NULL DEFAULT 0
);

-- Where agents run. Heartbeat keeps one `local` runtime per workspace present while it lives.
CREATE TABLE runtimes (
    runtime_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    presence_expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (workspace_id, name)
) WITH (fillfactor = 70);
CREATE INDEX runtimes_presence ON runtimes (presence_expires_at);

CREATE TABLE agents (
    agent_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    adapter text NOT NULL,
    adapter_config jsonb NOT NULL DEFAULT '{}',
    runtime_id uuid REFERENCES runtimes,
    owner_user_id text NOT NULL,
    invocation_rule text NOT NULL CHECK (invocation_rule IN ('private', 'workspace', 'members')),
    invocation_user_ids text[] NOT NULL DEFAULT '{}',
    max_concurrent_runs integer NOT NULL CHECK (max_concurrent_runs BETWEEN 1 AND 50),
    run_timeout interval NOT NULL CHECK (run_timeout >= '0'),
    idle_timeout interval NOT NULL CHECK (idle_timeout >= '0'),
    created_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (workspace_id, name)
);

CREATE TABLE issues (
    issue_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    number bigint NOT NULL,
    identifier text NOT NULL,
    title text NOT NULL CHECK (char_length(title) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    status text NOT NULL CHECK (status IN (
        'backlog', 'todo', 'in_progress', 'in_review', 'blocked', 'done', 'cancelled')),
    -- 0 critical, 1 high, 2 medium, 3 low, 4 none: in the order of the queue.
    priority smallint NOT NULL DEFAULT 4 CHECK (priority BETWEEN 0 AND 4),
    assignee_agent_id uuid REFERENCES agents,
    responsible_user_id text NOT NULL DEFAULT '',
    occurrence_key text,
    -- The attempt that holds it, from its claim to the end of its follow-up.
    execution_run_id uuid,
    revision bigint NOT NULL DEFAULT 1,
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (workspace_id, number)
) WITH (fillfactor = 80);
CREATE INDEX issues_list ON issues (workspace_id, issue_id DESC);
CREATE INDEX issues_assignee ON issues (assignee_agent_id, issue_id DESC);

-- Every intent to wake an agent, whatever became of it.
CREATE TABLE wakeup_requests (
    wakeup_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    source text NOT NULL CHECK (source IN ('automation', 'on_demand', 'assignment')),
    wake_reason text NOT NULL,
    title text NOT NULL,
    issue_id uuid,
    state text NOT NULL CHECK (state IN (
        'queued', 'deferred', 'claimed', 'coalesced', 'skipped', 'completed', 'failed',
        'cancelled')),
    reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    caller text NOT NULL,
    idempotency_key text,
    occurrence_key text,
    originator_user_id text NOT NULL DEFAULT '',
    accountable_user_id text NOT NULL DEFAULT '',
    responsible_user_id text NOT NULL DEFAULT '',
    autopilot_run_id text NOT NULL DEFAULT '',
    joined_wakeup_id uuid REFERENCES wakeup_requests,
    -- The newest attempt, and how many there were: one ledger per wakeup.
    run_id uuid,
    attempts integer NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    claimed_at timestamptz,
    finished_at timestamptz,
    CHECK ((finished_at IS NOT NULL)
        = (state IN ('skipped', 'completed', 'failed', 'cancelled'))),
    CHECK (state <> 'coalesced' OR joined_wakeup_id IS NOT NULL),
    CHECK (state NOT IN ('queued', 'claimed') OR run_id IS NOT NULL),
    CHECK (state NOT IN ('skipped', 'deferred', 'coalesced') OR reason <> ''),
    CHECK (occurrence_key IS NULL OR idempotency_key IS NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
CREATE UNIQUE INDEX wakeup_requests_idempotency
    ON wakeup_requests (workspace_id, caller, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX wakeup_requests_list ON wakeup_requests (workspace_id, wakeup_id DESC);
CREATE INDEX wakeup_requests_agent ON wakeup_requests (agent_id, wakeup_id DESC);
CREATE INDEX wakeup_requests_deferred ON wakeup_requests (issue_id, created_at, wakeup_id)
    WHERE state = 'deferred';
CREATE INDEX wakeup_requests_joinable ON wakeup_requests (agent_id, issue_id)
    WHERE state = 'queued' AND occurrence_key IS NULL;
CREATE INDEX wakeup_requests_joined ON wakeup_requests (joined_wakeup_id)
    WHERE joined_wakeup_id IS NOT NULL;
CREATE INDEX wakeup_requests_issue ON wakeup_requests (issue_id) WHERE issue_id IS NOT NULL;

-- What the agent gets to read; apart, so that a state change never copies it.
CREATE TABLE wakeup_payloads (
    wakeup_id uuid PRIMARY KEY REFERENCES wakeup_requests,
    prompt text NOT NULL DEFAULT '',
    content_type text NOT NULL DEFAULT '',
    body bytea NOT NULL DEFAULT '',
    delivery_id text NOT NULL DEFAULT '',
    facts jsonb NOT NULL DEFAULT '{}'
);

-- One occurrence makes at most one object. A key cancelled before it made one stays here, too.
CREATE TABLE occurrences (
    workspace_id uuid NOT NULL,
    occurrence_key text NOT NULL CHECK (char_length(occurrence_key) BETWEEN 1 AND 512),
    -- Deferred: the key is taken first, and decides whether the rest is made at all.
    wakeup_id uuid REFERENCES wakeup_requests DEFERRABLE INITIALLY DEFERRED,
    issue_id uuid REFERENCES issues DEFERRABLE INITIALLY DEFERRED,
    cancelled_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (workspace_id, occurrence_key),
    CHECK (wakeup_id IS NOT NULL OR cancelled_at IS NOT NULL)
);

CREATE INDEX occurrences_key ON occurrences (occurrence_key);

-- One attempt of an agent for a wakeup.
CREATE TABLE runs (
    run_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    agent_id uuid NOT NULL REFERENCES agents,
    wakeup_id uuid NOT NULL REFERENCES wakeup_requests,
    issue_id uuid REFERENCES issues,
    state text NOT NULL CHECK (state IN (
        'queued', 'running', 'succeeded', 'failed', 'cancelled', 'timed_out')),
    attempt integer NOT NULL CHECK (attempt >= 1),
    retry_of_run_id uuid REFERENCES runs,
    retry_reason text NOT NULL DEFAULT '',
    -- 0 its issue is in progress, 1 its issue is ready, 2 no issue, 3 its issue is blocked.
    ready_rank smallint NOT NULL CHECK (ready_rank BETWEEN 0 AND 3),
    priority smallint NOT NULL CHECK (priority BETWEEN 0 AND 4),
    start_by timestamptz NOT NULL,
    reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    exit_code integer,
    summary text NOT NULL DEFAULT '',
    result bytea,
    responsible_user_id text NOT NULL DEFAULT '',
    -- Set at claim, cleared in follow-up; slots and the issue go by it, not by the state.
    occupied boolean NOT NULL DEFAULT false,
    executor_id text NOT NULL DEFAULT '',
    -- Where its process lives: machine boot, PID namespace and spool of the executor.
    place text NOT NULL DEFAULT '',
    lease_token uuid,
    lease_expires_at timestamptz,
    deadline_at timestamptz,
    idle_deadline_at timestamptz,
    process_pid integer,
    process_start_ticks bigint,
    event_seq integer NOT NULL DEFAULT 0,
    -- The ids of the spans `run` and `invoke_agent`, emitted by whoever settles it.
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    agent_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(agent_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    started_at timestamptz,
    finished_at timestamptz,
    follow_up_done_at timestamptz,
    UNIQUE (wakeup_id, attempt),
    CHECK ((finished_at IS NOT NULL)
        = (state IN ('succeeded', 'failed', 'cancelled', 'timed_out'))),
    CHECK (state <> 'queued' OR NOT occupied),
    CHECK (state <> 'running' OR (occupied AND started_at IS NOT NULL)),
    -- The fence: a token exists exactly while somebody holds the run.
    CHECK (occupied = (lease_token IS NOT NULL)),
    CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
    CHECK ((follow_up_done_at IS NOT NULL) = (finished_at IS NOT NULL AND NOT occupied)),
    CHECK ((process_pid IS NULL) = (process_start_ticks IS NULL)),
    CHECK ((retry_of_run_id IS NULL) = (attempt = 1))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
CREATE UNIQUE INDEX runs_one_per_issue ON runs (issue_id) WHERE occupied;
CREATE UNIQUE INDEX runs_one_successor ON runs (retry_of_run_id)
    WHERE retry_of_run_id IS NOT NULL;
CREATE INDEX runs_claim
    ON runs (workspace_id, agent_id, ready_rank, priority, created_at, run_id)
    WHERE state = 'queued';
CREATE INDEX runs_start_by ON runs (start_by) WHERE state = 'queued';
CREATE INDEX runs_queued_issue ON runs (issue_id) WHERE state = 'queued';
CREATE INDEX runs_occupied_agent ON runs (agent_id) WHERE occupied;
-- All that is at work, a small set. Neither lease nor deadline is indexed: renewals stay HOT.
CREATE INDEX runs_executor ON runs (executor_id) WHERE occupied;
CREATE INDEX runs_list ON runs (workspace_id, run_id DESC);
CREATE INDEX runs_agent ON runs (agent_id, run_id DESC);
CREATE INDEX runs_issue ON runs (issue_id, run_id DESC) WHERE issue_id IS NOT NULL;

-- What happened in a run, in order. Append-only: pruning is for the owner.
CREATE TABLE run_events (
    run_id uuid NOT NULL REFERENCES runs,
    seq integer NOT NULL CHECK (seq >= 1),
    type text NOT NULL,
    message text NOT NULL DEFAULT '',
    facts jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (run_id, seq)
);

-- Output by byte offset, secrets blanked out; any replica serves it.
CREATE TABLE run_log_chunks (
    run_id uuid NOT NULL REFERENCES runs,
    stream text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    start_offset bigint NOT NULL CHECK (start_offset >= 0),
    end_offset bigint NOT NULL CHECK (end_offset > start_offset),
    data bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (run_id, stream, start_offset)
);
REVOKE UPDATE, DELETE ON run_events FROM reveille_heartbeat_app;
COMMENT ON TABLE run_events IS 'append-only: what happened is never edited';

-- The event feed of one schema. A producing service's migration contains this text as it stands;
-- it needs the schema's clock() function and revokes UPDATE on feed from the app role.

-- One row per life of this database: a failover, a restore or a copy starts a new one, because
-- transaction ids may then come again for other events.
CREATE TABLE feed_epoch (
    epoch bigint PRIMARY KEY,
    identity text NOT NULL UNIQUE,
    -- The newest position that retention has removed.
    floor_xid xid8 NOT NULL DEFAULT '0',
    floor_seq bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT clock()
);

-- Append-only. The order is (epoch, xid, seq); a transaction's rows appear together at its commit.
CREATE TABLE feed (
    epoch bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    type text NOT NULL CHECK (type <> ''),
    workspace_id uuid,
    occurrence_key text NOT NULL DEFAULT '',
    subject_id text NOT NULL,
    payload jsonb NOT NULL,
    trace_carrier jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(trace_carrier) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (epoch, xid, seq)
);

-- What this database is: another cluster, a promoted standby, a restored database or a restored
-- table each differ in one of the four parts.
CREATE FUNCTION feed_identity() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(
        '/',
        (SELECT system_identifier FROM pg_control_system()),
        left(pg_walfile_name(pg_current_wal_insert_lsn()), 8),
        (SELECT oid FROM pg_database WHERE datname = current_database()),
        'feed'::regclass::oid
    )
$$;

-- The epoch to write under, begun here when this is the first write of a new life. Epochs are times
-- in microseconds: two restores of one backup must not both call theirs "the next".
CREATE FUNCTION feed_current_epoch() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    me text := feed_identity();
    found bigint;
BEGIN
    SELECT e.epoch INTO found FROM feed_epoch e WHERE e.identity = me;
    IF found IS NULL THEN
        INSERT INTO feed_epoch (epoch, identity)
        SELECT greatest(
                (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                coalesce(max(e.epoch), 0) + 1
            ), me
        FROM feed_epoch e
        ON CONFLICT (identity) DO NOTHING;
        SELECT e.epoch INTO STRICT found FROM feed_epoch e WHERE e.identity = me;
    END IF;
    RETURN found;
END
$$;

REVOKE UPDATE ON feed FROM reveille_heartbeat_app;
COMMENT ON TABLE feed IS 'never updated: events are written once, and pruned by age';

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
