-- name: claim
-- Takes up deliveries that are due, each under a fresh token; the attempt is counted here, so that
-- a crash counts too. $1 lease length, $2 limit
UPDATE deliveries
SET lease_token = gen_random_uuid(), lease_expires_at = clock() + $1::interval,
    dispatch_attempts = dispatch_attempts + 1
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM deliveries
    WHERE state = 'queued' AND lease_token IS NULL AND available_at <= (SELECT clock())
    ORDER BY available_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED))
RETURNING id, lease_token, endpoint_id, workspace_id, event, action, actions, content_type, headers,
          body_bytes, body_sha256, received_at, queued_at, trace_carrier, dispatch_attempts,
          give_backs, run_id, admission;

-- name: bodies
-- The bodies that are about to travel. $1 ids
SELECT id, body FROM deliveries WHERE id = ANY ($1::uuid[]);

-- name: renew
-- Keeps leases alive; a row that is not returned is lost. $1 ids, $2 tokens, $3 lease length
UPDATE deliveries AS d
SET lease_expires_at = clock() + $3::interval
FROM unnest($1::uuid[], $2::uuid[]) AS held (id, token)
WHERE d.id = held.id AND d.lease_token = held.token
RETURNING d.id;

-- name: settle
-- The end of an attempt. The token alone is the fence: a row that is not returned was taken over.
-- $1 ids, $2 tokens, $3 states, $4 reasons, $5 messages, $6 attempts given back,
-- $7 times of the next attempt (or null), $8 judgements (null: as before), $9 run ids (likewise)
UPDATE deliveries AS d
SET state = done.state, reason = done.reason, message = done.message,
    dispatch_attempts = d.dispatch_attempts - done.given_back,
    give_backs = d.give_backs + done.given_back,
    available_at = coalesce(done.available_at, d.available_at),
    admission = coalesce(done.admission, d.admission),
    run_id = coalesce(done.run_id, d.run_id),
    lease_token = NULL, lease_expires_at = NULL,
    finished_at = CASE done.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[],
            $7::timestamptz[], $8::text[], $9::uuid[])
     AS done (id, token, state, reason, message, given_back, available_at, admission, run_id)
WHERE d.id = done.id AND d.lease_token = done.token
RETURNING d.id;

-- name: expired
-- Claims whose lease has run out by the database's clock. $1 limit
SELECT id, lease_token, dispatch_attempts, (SELECT clock()) AS now
FROM deliveries
WHERE lease_token IS NOT NULL AND lease_expires_at < (SELECT clock())
ORDER BY lease_expires_at
LIMIT $1;

-- name: take_over
-- Frees claims whose holder is gone; the token and the lease are compared once more.
-- $1 ids, $2 tokens, $3 states, $4 reasons, $5 messages, $6 times of the next attempt (or null)
UPDATE deliveries AS d
SET state = gone.state, reason = gone.reason, message = gone.message,
    available_at = coalesce(gone.available_at, d.available_at),
    lease_token = NULL, lease_expires_at = NULL,
    finished_at = CASE gone.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
     AS gone (id, token, state, reason, message, available_at)
WHERE d.id = gone.id AND d.lease_token = gone.token AND d.lease_expires_at < (SELECT clock())
RETURNING d.id;
