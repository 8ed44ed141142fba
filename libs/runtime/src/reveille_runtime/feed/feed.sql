-- name: feed_append
-- Write events in the business transaction, in the order given.
-- $1 types, $2 workspace ids, $3 occurrence keys, $4 subject ids, $5 payloads, $6 trace carriers
WITH now AS MATERIALIZED (SELECT feed_current_epoch() AS epoch)
INSERT INTO feed (epoch, type, workspace_id, occurrence_key, subject_id, payload, trace_carrier)
SELECT now.epoch, e.type, e.workspace_id, e.occurrence_key, e.subject_id, e.payload, e.trace_carrier
FROM now, unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[])
    WITH ORDINALITY
    AS e (type, workspace_id, occurrence_key, subject_id, payload, trace_carrier, place)
ORDER BY e.place;

-- name: feed_append_made
-- The same for what was made, and for nothing else; gives whose events they are. Where what makes
-- it is a statement, that stands in the place of the last parameter: one round trip for both.
-- $1 types, $2 workspace ids, $3 occurrence keys, $4 subject ids, $5 payloads, $6 trace carriers,
-- $7 ids of what was made
WITH made (id) AS (SELECT unnest($7::uuid[])),
now AS MATERIALIZED (SELECT feed_current_epoch() AS epoch)
INSERT INTO feed (epoch, type, workspace_id, occurrence_key, subject_id, payload, trace_carrier)
SELECT now.epoch, e.type, e.workspace_id, e.occurrence_key, e.subject_id, e.payload, e.trace_carrier
FROM now, unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[])
    WITH ORDINALITY
    AS e (type, workspace_id, occurrence_key, subject_id, payload, trace_carrier, place)
JOIN made ON made.id::text = e.subject_id
ORDER BY e.place
RETURNING subject_id;

-- name: feed_begin_epoch
-- A reader may be the first to see a new life of the database.
SELECT feed_current_epoch();

-- name: feed_head
-- Where the feed stands: everything below the snapshot's xmin is settled.
SELECT e.epoch, pg_current_snapshot() AS snapshot
FROM feed_epoch e
WHERE e.identity = feed_identity();

-- name: feed_read
-- What became visible since a snapshot, in order. Epoch, floor and snapshot come with it from the
-- same statement, on a row of their own when there is no event. The two branches are the only ways
-- for a row to be new: its transaction was still running then, or had not begun.
-- $1 epoch, $2 xid and $3 seq after which the page starts, $4 transactions running in the snapshot
-- already seen, $5 first transaction after it, $6 snapshot that bounds this pass (null: the
-- statement's own), $7 types (null: all), $8 limit
WITH here AS MATERIALIZED (
    SELECT e.epoch, e.floor_xid, e.floor_seq, pg_current_snapshot() AS snapshot
    FROM feed_epoch e
    WHERE e.identity = feed_identity()
),
page AS (
    (
        SELECT xid, seq, type, workspace_id, occurrence_key, subject_id, payload, trace_carrier,
            created_at
        FROM feed
        WHERE epoch = $1 AND xid = ANY($4::xid8[]) AND (xid, seq) > ($2::xid8, $3::bigint)
            AND ($6::pg_snapshot IS NULL OR pg_visible_in_snapshot(xid, $6::pg_snapshot))
            AND ($7::text[] IS NULL OR type = ANY($7::text[]))
        ORDER BY xid, seq
        LIMIT $8
    )
    UNION ALL
    (
        SELECT xid, seq, type, workspace_id, occurrence_key, subject_id, payload, trace_carrier,
            created_at
        FROM feed
        WHERE epoch = $1 AND xid >= $5::xid8 AND (xid, seq) > ($2::xid8, $3::bigint)
            AND ($6::pg_snapshot IS NULL OR pg_visible_in_snapshot(xid, $6::pg_snapshot))
            AND ($7::text[] IS NULL OR type = ANY($7::text[]))
        ORDER BY xid, seq
        LIMIT $8
    )
    ORDER BY xid, seq
    LIMIT $8
)
SELECT here.epoch, here.floor_xid, here.floor_seq, here.snapshot,
    page.xid, page.seq, page.type, page.workspace_id, page.occurrence_key, page.subject_id,
    page.payload, page.trace_carrier, page.created_at
FROM here LEFT JOIN page ON true
ORDER BY page.xid, page.seq;

-- name: feed_prune
-- Remove the oldest rows, as an unbroken prefix of the order, and remember how far: a cursor below
-- that floor must hear that it missed something. $1 age to keep (interval), $2 limit
WITH oldest AS MATERIALIZED (
    SELECT f.epoch, f.xid, f.seq, bool_and(
            f.created_at < (SELECT clock()) - $1::interval
            AND (
                f.xid < pg_snapshot_xmin(pg_current_snapshot())
                OR NOT EXISTS (
                    SELECT FROM feed_epoch e
                    WHERE e.epoch = f.epoch AND e.identity = feed_identity()
                )
            )
        ) OVER (ORDER BY f.epoch, f.xid, f.seq) AS prunable
    FROM (SELECT epoch, xid, seq, created_at FROM feed ORDER BY epoch, xid, seq LIMIT $2) f
),
gone AS (
    DELETE FROM feed f
    USING oldest o
    WHERE o.prunable AND f.epoch = o.epoch AND f.xid = o.xid AND f.seq = o.seq
    RETURNING f.epoch, f.xid, f.seq
),
lowered AS (
    UPDATE feed_epoch e
    SET floor_xid = g.xid, floor_seq = g.seq
    FROM (
        SELECT DISTINCT ON (epoch) epoch, xid, seq FROM gone ORDER BY epoch, xid DESC, seq DESC
    ) g
    WHERE e.epoch = g.epoch AND (e.floor_xid, e.floor_seq) < (g.xid, g.seq)
)
SELECT count(*) FROM gone;

-- name: cursor_load
-- How far a source has been followed. $1 source
SELECT cursor FROM cursors WHERE source = $1;

-- name: cursor_save
-- Move the cursor if nobody else did; no row touched means somebody did.
-- $1 source, $2 the cursor as it was read ('' for none), $3 the new one
INSERT INTO cursors (source, cursor, updated_at)
VALUES ($1, $3, clock())
ON CONFLICT (source) DO UPDATE SET cursor = excluded.cursor, updated_at = clock()
WHERE cursors.cursor = $2;
