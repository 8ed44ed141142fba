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
