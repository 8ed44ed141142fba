-- name: insert_deliveries
-- Stores what came in. A copy of a live delivery, or a row of an earlier try, gives no row.
-- $1 ids, $2 endpoint ids, $3 workspace ids, $4 providers, $5 events, $6 actions, $7 all actions
-- as JSON texts (a list of lists would be one array of two dimensions),
-- $8 dedupe keys, $9 signature states, $10 states, $11 reasons, $12 messages, $13 content types,
-- $14 headers, $15 bodies, $16 hashes, $17 response statuses, $18 carriers, $19 how long the
-- request may take until the worker steps in
INSERT INTO deliveries (id, endpoint_id, workspace_id, provider, event, action, actions, dedupe_key,
                        signature_state, state, reason, message, content_type, headers, body,
                        body_bytes, body_sha256, response_status, trace_carrier, available_at,
                        received_at, last_received_at, queued_at, finished_at)
SELECT new.id, new.endpoint_id, new.workspace_id, new.provider, new.event, new.action,
       new.actions::jsonb,
       new.dedupe_key, new.signature_state, new.state, new.reason, new.message, new.content_type,
       new.headers, new.body, length(new.body), new.body_sha256, new.response_status, new.carrier,
       t.moment + $19::interval, t.moment, t.moment, t.moment,
       CASE new.state WHEN 'queued' THEN NULL ELSE t.moment END
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
            $14::jsonb[], $15::bytea[], $16::bytea[], $17::integer[], $18::jsonb[])
     AS new (id, endpoint_id, workspace_id, provider, event, action, actions, dedupe_key,
             signature_state, state, reason, message, content_type, headers, body, body_sha256,
             response_status, carrier),
     (SELECT clock() AS moment) AS t
ON CONFLICT DO NOTHING
RETURNING id, received_at;

-- name: find_own
-- Rows of an earlier try whose COMMIT got no answer. $1 ids
SELECT id, received_at FROM deliveries WHERE id = ANY ($1::uuid[]);

-- name: count_copies
-- Notes that live deliveries came again. A failed one is taken up anew, and judged anew: autopilot
-- answers with the run it has, or makes another if it gave that one up.
-- $1 endpoint ids, $2 dedupe keys, $3 numbers of copies
WITH live AS (
    SELECT d.id, copy.copies
    FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS copy (endpoint_id, dedupe_key, copies)
    JOIN deliveries AS d ON d.endpoint_id = copy.endpoint_id AND d.dedupe_key = copy.dedupe_key
    WHERE d.state IN ('queued', 'dispatched') OR (d.state = 'failed' AND d.run_id IS NOT NULL)
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE deliveries AS d
SET attempt_count = d.attempt_count + live.copies,
    last_received_at = clock(),
    state = CASE d.state WHEN 'failed' THEN 'queued' ELSE d.state END,
    reason = CASE d.state WHEN 'failed' THEN '' ELSE d.reason END,
    message = CASE d.state WHEN 'failed' THEN '' ELSE d.message END,
    admission = CASE d.state WHEN 'failed' THEN NULL ELSE d.admission END,
    dispatch_attempts = CASE d.state WHEN 'failed' THEN 0 ELSE d.dispatch_attempts END,
    give_backs = CASE d.state WHEN 'failed' THEN 0 ELSE d.give_backs END,
    available_at = CASE d.state WHEN 'failed' THEN clock() ELSE d.available_at END,
    queued_at = CASE d.state WHEN 'failed' THEN clock() ELSE d.queued_at END,
    finished_at = CASE d.state WHEN 'failed' THEN NULL ELSE d.finished_at END
FROM live
WHERE d.id = live.id
RETURNING d.id, d.endpoint_id, d.workspace_id, d.dedupe_key, d.event, d.actions, d.body_bytes,
          d.body_sha256, d.received_at, d.trace_carrier, d.admission, d.state, d.run_id;

-- name: record_admissions
-- How deliveries were judged. One that is judged already, or that the worker holds, is left alone:
-- the worker hears the same and writes it under its lease.
-- $1 ids, $2 judgements, $3 run ids, $4 states, $5 reasons, $6 messages,
-- $7 response statuses (null: the sender's answer is out already)
UPDATE deliveries AS d
SET admission = new.admission, run_id = new.run_id, state = new.state, reason = new.reason,
    message = new.message, response_status = coalesce(new.response_status, d.response_status),
    available_at = clock(),
    finished_at = CASE new.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::integer[])
     AS new (id, admission, run_id, state, reason, message, response_status)
WHERE d.id = new.id AND d.state = 'queued' AND d.admission IS NULL AND d.lease_token IS NULL;

-- name: get_delivery
-- One delivery, without its body. $1 id
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier
FROM deliveries
WHERE id = $1;

-- name: list_deliveries
-- A page of a workspace's deliveries, newest first.
-- $1 workspace id, $2 endpoint id (or null), $3 states (or null), $4 before received_at (or null),
-- $5 before id, $6 limit
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier
FROM deliveries
WHERE workspace_id = $1
  AND ($2::uuid IS NULL OR endpoint_id = $2)
  AND ($3::text[] IS NULL OR state = ANY ($3))
  AND ($4::timestamptz IS NULL OR (received_at, id) < ($4, $5::uuid))
ORDER BY received_at DESC, id DESC
LIMIT $6;

-- name: explain_deliveries
-- A delivery by its own id or by its run's, or the newest of an endpoint, with the clock.
-- $1 id of any of these
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, (SELECT clock()) AS now
FROM deliveries
WHERE id = ANY (ARRAY(
    (SELECT id FROM deliveries WHERE id = $1)
    UNION
    (SELECT id FROM deliveries WHERE run_id = $1 LIMIT 5)
    UNION
    (SELECT id FROM deliveries WHERE endpoint_id = $1 ORDER BY received_at DESC, id DESC LIMIT 5)))
ORDER BY received_at DESC, id DESC;

-- name: body_chunk
-- A piece of a body; EXTERNAL storage makes that cost what the piece costs.
-- $1 id, $2 first byte (from 1), $3 length
SELECT substring(body FROM $2::integer FOR $3::integer) AS chunk FROM deliveries WHERE id = $1;
