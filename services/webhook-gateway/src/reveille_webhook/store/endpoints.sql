-- name: find_endpoints
-- The live endpoints that tokens lead to, a row for each of their secrets; a token before the last
-- one counts while its grace lasts. An expired secret still tells that a signature is demanded.
-- In subqueries of their own the values change no plan, and it is made once. $1 hashes of tokens
SELECT found.sha256, e.id, e.workspace_id, e.provider, e.max_body_bytes, e.generic,
       e.refuses_copies, e.rate_per_minute, e.hourly_budget, e.lane_path, e.excluded_senders,
       e.own_markers, e.tripped_at, t.moment, s.id AS secret_id, s.sealed,
       s.expires_at IS NULL OR s.expires_at > t.moment AS live,
       coalesce(s.last_used_at >= date_trunc('minute', t.moment), false) AS used_lately
FROM (SELECT clock() AS moment) AS t,
     (SELECT asked.sha256, e.id
      FROM unnest((SELECT $1::bytea[])) AS asked (sha256)
      JOIN endpoints AS e ON e.token_sha256 = asked.sha256
      UNION ALL
      SELECT asked.sha256, e.id
      FROM unnest((SELECT $1::bytea[])) AS asked (sha256)
      JOIN endpoints AS e ON e.previous_token_sha256 = asked.sha256
      WHERE e.previous_token_expires_at > (SELECT clock())) AS found
JOIN endpoints AS e ON e.id = found.id
LEFT JOIN endpoint_secrets AS s ON s.endpoint_id = e.id
WHERE e.deleted_at IS NULL AND (e.disowned_until IS NULL OR e.disowned_until <= t.moment)
ORDER BY s.created_at, s.id;

-- name: disown
-- Endpoints that autopilot does not know: for a while they are as if they were not there.
-- $1 ids, $2 how long
UPDATE endpoints SET disowned_until = clock() + $2::interval
WHERE id = ANY ($1::uuid[]);

-- name: touch_secrets
-- Notes that secrets verified something, to the minute; one that another request is just noting
-- is left alone. $1 ids
UPDATE endpoint_secrets
SET last_used_at = date_trunc('minute', clock())
WHERE id = ANY (ARRAY(
    SELECT id FROM endpoint_secrets WHERE id = ANY ($1::uuid[]) ORDER BY id
    FOR UPDATE SKIP LOCKED));

-- name: rate_of
-- How fast a hook's deliveries go, held against claims and other wishes. $1 id
SELECT rate_per_minute FROM endpoints WHERE id = $1 FOR UPDATE;

-- name: pace_anew
-- Gives back the moments of a hook's deliveries that wait for theirs; each gets another, in their
-- order. They begin to wait anew, as what people release does: the budget, in which they were counted,
-- neither counts nor holds them once more, and they are judged anew. What was tried already waits
-- for another reason and stays.
-- A claim may have hold of what is due, and wait for the hook, which is held here. So what is due
-- within the second is left alone: of two that meet, only one ever waits.
-- $1 endpoint id, $2 how many at most, the nearest first: a wish has to be stored in time
WITH waiting AS MATERIALIZED (
    SELECT id, available_at FROM deliveries
    WHERE endpoint_id = $1 AND state = 'queued' AND lease_token IS NULL
      AND available_at > (SELECT clock() + interval '1 second')
      AND slotted AND dispatch_attempts = 0 AND give_backs = 0
      -- The moment of the first too many: their ids would be joined, which may cost their square.
      AND available_at < coalesce(
          (SELECT beyond.available_at FROM deliveries AS beyond
           WHERE beyond.endpoint_id = $1 AND beyond.state = 'queued' AND beyond.lease_token IS NULL
             AND beyond.available_at > (SELECT clock() + interval '1 second')
             AND beyond.slotted AND beyond.dispatch_attempts = 0 AND beyond.give_backs = 0
           ORDER BY beyond.available_at
           OFFSET $2 LIMIT 1),
          'infinity')
    ORDER BY id
    FOR UPDATE)
UPDATE deliveries AS d
SET slotted = false, message = '', queued_at = t.moment, admission = NULL,
    available_at = t.moment + w.place * interval '1 microsecond'
FROM (SELECT id, row_number() OVER (ORDER BY available_at, id) AS place FROM waiting) AS w,
     (SELECT clock() AS moment) AS t
WHERE d.id = w.id;

-- name: put_endpoint
-- Stores a wish; one that is not newer than what is stored changes nothing, a tombstone included.
-- Under another rate no moment ahead is anybody's; what of the last minute was not used still is.
-- $1 id, $2 workspace, $3 hash of the token, $4 hash of the token before, $5 end of its grace,
-- $6 provider, $7 largest body, $8 revision, $9 how the sender signs (or null), $10 whether copies
-- of signed content are refused, $11 rate (or null), $12 budget (or null), $13 path of the lane's
-- value (or null), $14 senders left out, $15 own markers
INSERT INTO endpoints (id, workspace_id, token_sha256, previous_token_sha256,
                       previous_token_expires_at, provider, max_body_bytes, revision, generic,
                       refuses_copies, rate_per_minute, hourly_budget, lane_path, excluded_senders,
                       own_markers)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (id) DO UPDATE
SET workspace_id = excluded.workspace_id, token_sha256 = excluded.token_sha256,
    previous_token_sha256 = excluded.previous_token_sha256,
    previous_token_expires_at = excluded.previous_token_expires_at,
    provider = excluded.provider, max_body_bytes = excluded.max_body_bytes,
    generic = excluded.generic, refuses_copies = excluded.refuses_copies,
    rate_per_minute = excluded.rate_per_minute, hourly_budget = excluded.hourly_budget,
    next_slot_at = CASE
        WHEN endpoints.rate_per_minute IS DISTINCT FROM excluded.rate_per_minute
            THEN least(endpoints.next_slot_at, clock())
        ELSE endpoints.next_slot_at END,
    lane_path = excluded.lane_path, excluded_senders = excluded.excluded_senders,
    own_markers = excluded.own_markers, disowned_until = NULL,
    revision = excluded.revision, deleted_at = NULL, updated_at = clock()
WHERE endpoints.revision < excluded.revision
RETURNING id;

-- name: bury_endpoint
-- Leaves a tombstone without a credential; a deletion that is not newer changes nothing.
-- $1 id, $2 revision
INSERT INTO endpoints (id, revision, deleted_at)
VALUES ($1, $2, clock())
ON CONFLICT (id) DO UPDATE
SET token_sha256 = NULL, previous_token_sha256 = NULL, previous_token_expires_at = NULL,
    revision = excluded.revision, deleted_at = clock(), updated_at = clock()
WHERE endpoints.revision < excluded.revision
RETURNING id;

-- name: destroy_secrets
-- The secrets of a deleted endpoint, with it. $1 endpoint id
DELETE FROM endpoint_secrets WHERE endpoint_id = $1;

-- name: lock_endpoint
-- A live endpoint, held so that it is not deleted while its secrets change. $1 id
SELECT id FROM endpoints WHERE id = $1 AND deleted_at IS NULL FOR SHARE;

-- name: own_endpoint
-- A live endpoint, held against everybody else. $1 id
SELECT id FROM endpoints WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- name: workspace_of
-- Whose an endpoint is, deleted or not. $1 id
SELECT workspace_id FROM endpoints WHERE id = $1;

-- name: hold_breakers
-- Which breakers are open, held so that none is opened or closed until the transaction ends. As they
-- are once they are held, so no later statement has to look. $1 ids
SELECT id, tripped_at IS NOT NULL AS tripped FROM endpoints
WHERE id = ANY ($1::uuid[])
ORDER BY id
FOR SHARE;

-- name: close_breaker
-- Lets a hook fire again, with a window of its own. $1 id
UPDATE endpoints
SET tripped_at = NULL, window_started_at = NULL, window_count = 0
WHERE id = $1;

-- name: other_secrets
-- Secrets that do not count at a hook, for explanations: its own expired ones, and those of other
-- hooks in the workspace, of the same sender first: these are mixed up. $1 endpoint id, $2 workspace id, $3 limit
SELECT s.endpoint_id, s.id, s.sealed
FROM endpoint_secrets AS s
JOIN endpoints AS e ON e.id = s.endpoint_id
WHERE e.workspace_id = $2 AND e.deleted_at IS NULL
  AND (s.endpoint_id <> $1 OR s.expires_at <= (SELECT clock()))
ORDER BY s.endpoint_id <> $1,
         e.provider <> (SELECT own.provider FROM endpoints AS own WHERE own.id = $1),
         s.created_at DESC
LIMIT $3;

-- name: insert_secret
-- A secret; the same id again changes nothing.
-- $1 id, $2 endpoint id, $3 sealed, $4 hint, $5 expiry
INSERT INTO endpoint_secrets (id, endpoint_id, sealed, hint, expires_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO NOTHING;

-- name: delete_secret
-- Destroys one secret. $1 endpoint id, $2 id
DELETE FROM endpoint_secrets WHERE endpoint_id = $1 AND id = $2;

-- name: list_secrets
-- The secrets of an endpoint by their hints, oldest first. $1 endpoint id
SELECT id, hint, created_at, expires_at, last_used_at
FROM endpoint_secrets
WHERE endpoint_id = $1
ORDER BY created_at, id;

-- name: explain_endpoint
-- An endpoint and how many secrets guard it. $1 id
SELECT e.id, e.workspace_id, e.provider, e.max_body_bytes, e.revision, e.deleted_at, e.updated_at,
       e.tripped_at, e.next_slot_at - t.moment AS paced,
       (SELECT count(*) FROM deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 'held')
           AS held,
       e.previous_token_expires_at > t.moment AS in_grace,
       (SELECT count(*) FROM endpoint_secrets AS s WHERE s.endpoint_id = e.id) AS secrets,
       (SELECT count(*) FROM endpoint_secrets AS s
        WHERE s.endpoint_id = e.id AND (s.expires_at IS NULL OR s.expires_at > t.moment))
           AS live_secrets
FROM endpoints AS e, (SELECT clock() AS moment) AS t
WHERE e.id = $1;
