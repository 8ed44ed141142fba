-- name: create_plain
-- What the single-row inserts go into: the columns that cost something.
CREATE TABLE plain (
    id uuid PRIMARY KEY,
    endpoint_id uuid NOT NULL,
    dedupe_key text NOT NULL,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL
);
ALTER TABLE plain ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX ON plain (endpoint_id, dedupe_key);

-- name: find_hook
-- $1 hash of the token
SELECT id, workspace_id FROM webhook.endpoints WHERE token_sha256 = $1 AND deleted_at IS NULL;

-- name: insert_delivery
-- $1 id, $2 endpoint, $3 workspace, $4 dedupe key, $5 body, $6 hash
INSERT INTO webhook.deliveries (id, endpoint_id, workspace_id, provider, event, action, dedupe_key,
    signature_state, state, body, body_bytes, body_sha256, response_status, available_at,
    received_at, last_received_at, queued_at)
SELECT $1, $2, $3, 'github', 'push', '', $4, 'valid', 'queued', $5::bytea, length($5::bytea), $6, 202,
    t + interval '1 day', t, t, t
FROM (SELECT webhook.clock() AS t) AS t;

-- name: record
-- $1 id, $2 run
UPDATE webhook.deliveries SET admission = 'accepted', run_id = $2, response_status = 200
WHERE id = $1;

-- name: counted
-- Deliveries and runs of a hook. $1 endpoint
SELECT (SELECT count(*) FROM webhook.deliveries
        WHERE endpoint_id = $1 AND state <> 'rejected') AS deliveries,
       (SELECT count(*) FROM webhook.deliveries WHERE endpoint_id = $1 AND run_id IS NOT NULL) AS admitted,
       (SELECT count(*) FROM autopilot.runs WHERE trigger_id = $1) AS runs,
       (SELECT count(DISTINCT delivery_id) FROM autopilot.runs WHERE trigger_id = $1) AS distinct_runs;

-- name: lost
-- Which of some deliveries are not there. $1 ids
SELECT count(*) FROM unnest($1::uuid[]) AS told (id)
WHERE NOT EXISTS (SELECT FROM webhook.deliveries AS d WHERE d.id = told.id);

-- name: forget
-- Between rounds.
TRUNCATE webhook.deliveries;
