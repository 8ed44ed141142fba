-- name: insert_deliveries
-- Stores what came in. A copy of a live delivery, or a row of an earlier try, gives no row. Signed
-- content that came before under another id is noted; content that may come once gives no row then,
-- whatever its hook allowed when it came first. The index is for what comes at the same time.
-- Of a burst most deliveries have much in common: what they share is sent once, as their form.
-- $1 ids, $2 dedupe keys, $3 headers, $4 bodies, $5 hashes, $6 carriers, $7 content keys, $8 forms;
-- and of each form: $9 endpoint ids, $10 workspace ids, $11 providers, $12 events, $13 actions,
-- $14 all actions as JSON texts (a list of lists would be one array of two dimensions),
-- $15 signature states, $16 states, $17 reasons, $18 messages, $19 content types, $20 response
-- statuses, $21 senders, $22 their retries, $23 whether each content may come once, $24 lanes,
-- $25 notes on signatures, joined by spaces
INSERT INTO deliveries (id, endpoint_id, workspace_id, provider, event, action, actions, dedupe_key,
                        signature_state, state, reason, message, content_type, headers, body,
                        body_bytes, body_sha256, response_status, trace_carrier, available_at,
                        received_at, last_received_at, queued_at, finished_at, sender,
                        sender_retries, content_key, content_once, content_copy_of, lane_key,
                        signature_notes)
SELECT new.id, form.endpoint_id, form.workspace_id, form.provider, form.event, form.action,
       form.actions::jsonb, new.dedupe_key, form.signature_state, form.state, form.reason,
       form.message, form.content_type, new.headers, new.body, length(new.body), new.body_sha256,
       form.response_status, new.carrier, t.moment, t.moment, t.moment, t.moment,
       CASE WHEN form.state IN ('queued', 'held') THEN NULL ELSE t.moment END,
       form.sender, form.retries, new.content_key, form.content_once,
       earlier.id, form.lane_key, coalesce(string_to_array(nullif(form.notes, ''), ' '), '{}')
FROM (SELECT clock() AS moment) AS t,
     unnest((SELECT $1::uuid[]), (SELECT $2::text[]), (SELECT $3::jsonb[]), (SELECT $4::bytea[]),
            (SELECT $5::bytea[]), (SELECT $6::jsonb[]), (SELECT $7::bytea[]), (SELECT $8::integer[]))
     WITH ORDINALITY
     AS new (id, dedupe_key, headers, body, body_sha256, carrier, content_key, form, place)
JOIN unnest((SELECT $9::uuid[]), (SELECT $10::uuid[]), (SELECT $11::text[]), (SELECT $12::text[]),
            (SELECT $13::text[]), (SELECT $14::text[]), (SELECT $15::text[]), (SELECT $16::text[]),
            (SELECT $17::text[]), (SELECT $18::text[]), (SELECT $19::text[]),
            (SELECT $20::integer[]), (SELECT $21::text[]), (SELECT $22::integer[]),
            (SELECT $23::boolean[]), (SELECT $24::text[]), (SELECT $25::text[]))
     WITH ORDINALITY
     AS form (endpoint_id, workspace_id, provider, event, action, actions, signature_state, state,
              reason, message, content_type, response_status, sender, retries, content_once,
              lane_key, notes, place)
     ON form.place = new.form
LEFT JOIN LATERAL (
    SELECT d.id FROM deliveries AS d
    WHERE d.content_key = new.content_key AND d.holds_key
    ORDER BY d.received_at, d.id
    LIMIT 1) AS earlier ON new.content_key IS NOT NULL
WHERE NOT (form.content_once AND earlier.id IS NOT NULL)
ORDER BY new.place
ON CONFLICT DO NOTHING
RETURNING id, received_at, state;

-- name: find_own
-- Rows of an earlier try whose COMMIT got no answer. $1 ids
SELECT id, received_at, state FROM deliveries WHERE id = ANY ($1::uuid[]);

-- name: count_copies
-- Notes that live deliveries came again. A failed one is taken up anew, and judged anew: autopilot
-- answers with the run it has, or makes another if it gave that one up.
-- A held one stays held. $1 endpoint ids, $2 dedupe keys, $3 numbers of copies, $4 the sender's retries
WITH live AS (
    SELECT d.id, copy.copies, copy.retries
    FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::integer[])
         AS copy (endpoint_id, dedupe_key, copies, retries)
    JOIN deliveries AS d ON d.endpoint_id = copy.endpoint_id AND d.dedupe_key = copy.dedupe_key
    WHERE d.holds_key
    ORDER BY d.id
    FOR UPDATE OF d
)
UPDATE deliveries AS d
SET attempt_count = d.attempt_count + live.copies,
    sender_retries = greatest(d.sender_retries, live.retries),
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

-- name: originals_of_content
-- The first live delivery of each signed content. $1 content keys
SELECT d.content_key, d.id, d.endpoint_id, d.workspace_id, d.event, d.actions, d.body_bytes,
       d.body_sha256, d.received_at, d.trace_carrier, d.admission, d.state, d.run_id
FROM unnest($1::bytea[]) AS wanted (content_key),
     LATERAL (
         SELECT content_key, id, endpoint_id, workspace_id, event, actions, body_bytes, body_sha256,
                received_at, trace_carrier, admission, state, run_id
         FROM deliveries
         WHERE deliveries.content_key = wanted.content_key AND holds_key
         ORDER BY received_at, id
         LIMIT 1) AS d;

-- name: record_admissions
-- How deliveries were judged. One that is judged already, or that the worker holds, is left alone:
-- the worker hears the same and writes it under its lease. So is one that does not wait yet, because
-- its moment is far off: what was said before then says nothing.
-- Found by their ids: the index of all that is due, which `state` alone would offer, may be long.
-- In subqueries of their own the values change no plan, and it is made once.
-- $1 ids, $2 judgements, $3 run ids, $4 states, $5 reasons, $6 messages,
-- $7 response statuses (null: the sender's answer is out already)
UPDATE deliveries AS d
SET admission = new.admission, run_id = new.run_id, state = new.state, reason = new.reason,
    message = new.message, response_status = coalesce(new.response_status, d.response_status),
    finished_at = CASE new.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest((SELECT $1::uuid[]), (SELECT $2::text[]), (SELECT $3::uuid[]), (SELECT $4::text[]),
            (SELECT $5::text[]), (SELECT $6::text[]), (SELECT $7::integer[]))
     AS new (id, admission, run_id, state, reason, message, response_status)
WHERE d.id = new.id
  AND d.state || '' = 'queued' AND d.admission IS NULL AND d.lease_token IS NULL
  AND d.queued_at <= (SELECT clock());

-- name: get_delivery
-- One delivery, without its body. $1 id
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, sender, sender_retries,
       content_copy_of, lane_key, replayed_from, signature_notes
FROM deliveries
WHERE id = $1;

-- name: list_deliveries
-- A page of a workspace's deliveries, newest first.
-- $1 workspace id, $2 endpoint id (or null), $3 states (or null), $4 before received_at (or null),
-- $5 before id, $6 limit, $7 since (or null), $8 until (or null), $9 event (or null),
-- $10 provider (or null), $11 dedupe key (or null), $12 hash of the body (or null)
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, sender, sender_retries,
       content_copy_of, lane_key, replayed_from, signature_notes
FROM deliveries
WHERE workspace_id = $1
  AND ($2::uuid IS NULL OR endpoint_id = $2)
  AND ($3::text[] IS NULL OR state = ANY ($3))
  AND ($4::timestamptz IS NULL OR (received_at, id) < ($4, $5::uuid))
  AND ($7::timestamptz IS NULL OR received_at >= $7)
  AND ($8::timestamptz IS NULL OR received_at < $8)
  AND ($9::text IS NULL OR event = $9)
  AND ($10::text IS NULL OR provider = $10)
  AND ($11::text IS NULL OR dedupe_key = $11)
  AND ($12::bytea IS NULL OR body_sha256 = $12)
ORDER BY received_at DESC, id DESC
LIMIT $6;

-- name: replay
-- A new delivery of the bytes of another one, due now; its dedupe key stays with the original.
-- $1 id of the original, $2 id of the new one, $3 carrier
INSERT INTO deliveries (id, endpoint_id, workspace_id, provider, event, action, actions,
                        signature_state, state, content_type, headers, body, body_bytes,
                        body_sha256, response_status, trace_carrier, available_at, received_at,
                        last_received_at, queued_at, sender, lane_key, replayed_from)
SELECT $2, d.endpoint_id, d.workspace_id, d.provider, d.event, d.action, d.actions,
       d.signature_state, 'queued', d.content_type, d.headers, d.body, d.body_bytes,
       d.body_sha256, 202, $3, t.moment, t.moment, t.moment, t.moment, d.sender, d.lane_key, d.id
FROM deliveries AS d, (SELECT clock() AS moment) AS t
WHERE d.id = $1;

-- name: release_held
-- Lets the held deliveries of a hook go, oldest first; each gets a moment within the rate again, and
-- is judged anew: the run that it was admitted as may have been given up, or withdrawn.
-- $1 endpoint id, $2 limit
UPDATE deliveries
SET state = 'queued', reason = '', message = '', slotted = false, available_at = clock(),
    queued_at = clock(), admission = NULL
WHERE id = ANY (ARRAY(
    SELECT id FROM deliveries WHERE endpoint_id = $1 AND state = 'held'
    ORDER BY received_at, id LIMIT $2 FOR UPDATE SKIP LOCKED));

-- name: held
-- The oldest held deliveries of a hook. $1 endpoint id, $2 limit
SELECT id FROM deliveries WHERE endpoint_id = $1 AND state = 'held'
ORDER BY received_at, id LIMIT $2;

-- name: purge_held
-- Ends deliveries; one that was released meanwhile is left alone. $1 ids
UPDATE deliveries
SET state = 'ignored', reason = 'purged', message = 'purged while it was held',
    finished_at = clock()
WHERE id = ANY (ARRAY(
    SELECT id FROM deliveries WHERE id = ANY ($1::uuid[]) AND state = 'held'
    ORDER BY id FOR UPDATE));

-- name: purged
-- Those of some deliveries that people ended. $1 ids
SELECT id FROM deliveries
WHERE id = ANY ($1::uuid[]) AND state = 'ignored' AND reason = 'purged'
ORDER BY id;

-- name: came_in
-- What came in after a position, oldest first.
-- $1 workspace id, $2 endpoint id (or null), $3 received_at and $4 id of the position, $5 limit
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, sender, sender_retries,
       content_copy_of, lane_key, replayed_from, signature_notes
FROM deliveries
WHERE workspace_id = $1
  AND ($2::uuid IS NULL OR endpoint_id = $2)
  AND (received_at, id) > ($3, $4)
ORDER BY received_at, id
LIMIT $5;

-- name: as_they_stand
-- Deliveries as they now are, the oldest first.
-- $1 ids
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, sender, sender_retries,
       content_copy_of, lane_key, replayed_from, signature_notes
FROM deliveries
WHERE id = ANY ($1)
ORDER BY received_at, id;

-- name: prune
-- Forgets deliveries that ended long ago, oldest first, and gives how many were looked at.
-- $1 kept for, $2 limit
WITH gone AS (
    DELETE FROM deliveries
    WHERE id = ANY (ARRAY(
        SELECT id FROM deliveries
        WHERE finished_at IS NOT NULL AND finished_at < (SELECT clock() - $1::interval)
          AND last_received_at < (SELECT clock() - $1::interval)
        ORDER BY finished_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING id)
SELECT count(*) FROM gone;

-- name: explain_deliveries
-- A delivery by its own id or by its run's, or the newest of an endpoint, with the clock.
-- $1 id of any of these
SELECT id, endpoint_id, workspace_id, provider, event, action, dedupe_key, signature_state, state,
       reason, message, admission, run_id, content_type, headers, body_bytes, body_sha256,
       response_status, attempt_count, dispatch_attempts, available_at, lease_expires_at,
       received_at, last_received_at, finished_at, trace_carrier, sender, sender_retries,
       content_copy_of, lane_key, replayed_from, signature_notes, (SELECT clock()) AS now
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
