-- The rest of the rule plane: targets, overlap, quotas, people, one-shots, and the feed.

-- How many runs a workspace may have in a period; off counts nothing.
ALTER TABLE workspaces
    -- Whether work goes on in it; heartbeat is told, and decides by it.
    ADD COLUMN status text NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'paused', 'archived')),
    ADD COLUMN quota_action text NOT NULL DEFAULT 'off'
        CHECK (quota_action IN ('off', 'observe', 'enforce')),
    ADD COLUMN quota_limit bigint NOT NULL DEFAULT 0 CHECK (quota_limit >= 0),
    ADD COLUMN quota_period text NOT NULL DEFAULT 'month'
        CHECK (quota_period IN ('day', 'month'));

-- The row whose lock orders a period's admissions. What is used is counted from the runs; what was
-- refused is counted here.
CREATE TABLE quota_periods (
    workspace_id uuid NOT NULL REFERENCES workspaces (id),
    period_start timestamptz NOT NULL,
    period_end timestamptz NOT NULL CHECK (period_end > period_start),
    blocked_counts jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (workspace_id, period_start)
);

-- revision counts every change and makes the etag; active_since is when the rule came into force.
ALTER TABLE autopilots
    ALTER COLUMN agent_id DROP NOT NULL,
    ADD COLUMN squad_id uuid,
    ADD COLUMN project_id uuid,
    ADD COLUMN overlap_policy text NOT NULL DEFAULT 'allow'
        CHECK (overlap_policy IN ('allow', 'skip', 'buffer_one', 'cancel_other')),
    ADD COLUMN pause_reason text,
    ADD COLUMN revision integer NOT NULL DEFAULT 1,
    ADD COLUMN active_since timestamptz NOT NULL DEFAULT clock(),
    ADD COLUMN skip_noticed_at timestamptz,
    DROP CONSTRAINT autopilots_status_check,
    ADD CONSTRAINT autopilots_status_check CHECK (status IN ('active', 'paused', 'archived')),
    ADD CONSTRAINT autopilots_target_check CHECK (num_nonnulls(agent_id, squad_id) = 1),
    ADD CONSTRAINT autopilots_pause_check CHECK (pause_reason IS NULL OR status = 'paused');
UPDATE autopilots SET revision = rule_sequence, active_since = updated_at;
CREATE INDEX autopilots_agent_idx ON autopilots (agent_id) WHERE status = 'active';
CREATE INDEX autopilots_squad_idx ON autopilots (squad_id) WHERE squad_id IS NOT NULL;

-- Members who may change a rule of another.
CREATE TABLE collaborators (
    autopilot_id uuid NOT NULL REFERENCES autopilots (id),
    user_id text NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    granted_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (autopilot_id, user_id)
);

-- Members who follow a rule: they subscribe to its issues and get its notices.
CREATE TABLE subscribers (
    autopilot_id uuid NOT NULL REFERENCES autopilots (id),
    user_id text NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    PRIMARY KEY (autopilot_id, user_id)
);

-- A schedule fires by cron, or once at run_at.
ALTER TABLE triggers
    ADD COLUMN run_at timestamptz,
    DROP CONSTRAINT triggers_config_check,
    ADD CONSTRAINT triggers_config_check CHECK (
        CASE kind
            WHEN 'schedule' THEN
                num_nonnulls(cron, run_at) = 1 AND time_zone IS NOT NULL
                AND provider IS NULL AND token_sha256 IS NULL
            ELSE
                cron IS NULL AND run_at IS NULL AND provider IS NOT NULL
                AND event_filters IS NOT NULL AND max_body_bytes IS NOT NULL
                AND token_sha256 IS NOT NULL
        END
    );

-- No publisher is the system itself.
ALTER TABLE rule_versions
    ALTER COLUMN publisher_user_id DROP NOT NULL,
    ALTER COLUMN agent_id DROP NOT NULL,
    ADD COLUMN squad_id uuid,
    ADD COLUMN project_id uuid,
    ADD COLUMN overlap_policy text NOT NULL DEFAULT 'allow';
CREATE INDEX rule_versions_created_idx ON rule_versions (created_at);

-- A run that waits for an earlier one is buffered. quota_period_start names the period it counts in:
-- the row is its own reservation, and gives it back by ending without having made anything.
ALTER TABLE runs
    ALTER COLUMN agent_id DROP NOT NULL,
    ADD COLUMN squad_id uuid,
    ADD COLUMN project_id uuid,
    ADD COLUMN quota_period_start timestamptz,
    DROP CONSTRAINT runs_originator_check,
    -- Not merely equal: an originator without anybody who answers compares to null, which passes.
    ADD CONSTRAINT runs_originator_check CHECK (
        originator_user_id IS NULL
        OR originator_user_id IS NOT DISTINCT FROM accountable_user_id
    ),
    DROP CONSTRAINT runs_state_check,
    ADD CONSTRAINT runs_state_check CHECK (
        state IN (
            'pending', 'buffered', 'issue_created', 'running',
            'completed', 'failed', 'skipped', 'cancelled'
        )
    );
CREATE INDEX runs_open_idx ON runs (autopilot_id, id) WHERE finished_at IS NULL;
CREATE INDEX runs_finished_idx ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_quota_idx ON runs (workspace_id, quota_period_start)
    WHERE quota_period_start IS NOT NULL
        AND (finished_at IS NULL OR state = 'completed' OR issue_id IS NOT NULL);

-- Versions are append-only for the service; this is the one way by which they are forgotten: those
-- that nothing kept refers to. Ids of runs tell when they were made, which bounds the look for one.
CREATE FUNCTION prune_rule_versions(keep interval, most integer) RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = autopilot AS $$
    WITH gone AS (
        DELETE FROM rule_versions
        WHERE id IN (
            SELECT v.id
            FROM rule_versions v
            JOIN rule_versions n
                ON n.autopilot_id = v.autopilot_id AND n.sequence = v.sequence + 1
            WHERE v.created_at < (SELECT clock()) - keep AND n.created_at < (SELECT clock()) - keep
                AND NOT EXISTS (
                    SELECT FROM runs r
                    WHERE r.autopilot_id = v.autopilot_id AND r.rule_version_id = v.id
                        AND r.id < (
                            lpad(
                                to_hex((extract(epoch FROM n.created_at) * 1000)::bigint + 86400000),
                                12, '0'
                            ) || repeat('0', 20)
                        )::uuid
                )
            ORDER BY v.created_at
            LIMIT most
        )
        RETURNING id
    )
    SELECT count(*)::integer FROM gone
$$;

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
REVOKE UPDATE ON feed FROM reveille_autopilot_app;
COMMENT ON TABLE feed IS 'never updated: events are written once, and pruned by age';
