-- name: find_endpoints
-- The live endpoints that tokens lead to; a token before the last one counts while its grace lasts.
-- $1 hashes of tokens
SELECT asked.sha256, e.id, e.workspace_id, e.provider, e.max_body_bytes
FROM unnest($1::bytea[]) AS asked (sha256)
JOIN endpoints AS e ON e.token_sha256 = asked.sha256
WHERE e.deleted_at IS NULL
UNION ALL
SELECT asked.sha256, e.id, e.workspace_id, e.provider, e.max_body_bytes
FROM unnest($1::bytea[]) AS asked (sha256)
JOIN endpoints AS e ON e.previous_token_sha256 = asked.sha256
WHERE e.deleted_at IS NULL AND e.previous_token_expires_at > (SELECT clock());

-- name: secrets_of_endpoints
-- All signing secrets of some endpoints; an expired one still tells that a signature is demanded.
-- $1 endpoint ids
SELECT s.endpoint_id, s.id, s.sealed,
       s.expires_at IS NULL OR s.expires_at > t.moment AS live,
       coalesce(s.last_used_at >= date_trunc('minute', t.moment), false) AS used_lately
FROM endpoint_secrets AS s, (SELECT clock() AS moment) AS t
WHERE s.endpoint_id = ANY ($1::uuid[])
ORDER BY s.created_at, s.id;

-- name: touch_secrets
-- Notes that secrets verified something, to the minute; one that another request is just noting
-- is left alone. $1 ids
UPDATE endpoint_secrets
SET last_used_at = date_trunc('minute', clock())
WHERE id = ANY (ARRAY(
    SELECT id FROM endpoint_secrets WHERE id = ANY ($1::uuid[]) ORDER BY id
    FOR UPDATE SKIP LOCKED));

-- name: put_endpoint
-- Stores a wish; one that is not newer than what is stored changes nothing, a tombstone included.
-- $1 id, $2 workspace, $3 hash of the token, $4 hash of the token before, $5 end of its grace,
-- $6 provider, $7 largest body, $8 revision
INSERT INTO endpoints (id, workspace_id, token_sha256, previous_token_sha256,
                       previous_token_expires_at, provider, max_body_bytes, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO UPDATE
SET workspace_id = excluded.workspace_id, token_sha256 = excluded.token_sha256,
    previous_token_sha256 = excluded.previous_token_sha256,
    previous_token_expires_at = excluded.previous_token_expires_at,
    provider = excluded.provider, max_body_bytes = excluded.max_body_bytes,
    revision = excluded.revision, deleted_at = NULL, updated_at = clock()
WHERE endpoints.revision < excluded.revision;

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
       e.previous_token_expires_at > t.moment AS in_grace,
       (SELECT count(*) FROM endpoint_secrets AS s WHERE s.endpoint_id = e.id) AS secrets,
       (SELECT count(*) FROM endpoint_secrets AS s
        WHERE s.endpoint_id = e.id AND (s.expires_at IS NULL OR s.expires_at > t.moment))
           AS live_secrets
FROM endpoints AS e, (SELECT clock() AS moment) AS t
WHERE e.id = $1;
