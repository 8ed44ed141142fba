-- name: request_reserve
-- The first to write the key does the work; a second waits here for the first to commit.
-- $1 principal, $2 method, $3 request id, $4 fingerprint
INSERT INTO requests (principal, method, request_id, fingerprint)
VALUES ($1, $2, $3, $4)
ON CONFLICT (principal, method, request_id) DO NOTHING
RETURNING true;

-- name: request_find
-- What the first one was asked and answered, in a statement after the wait.
-- $1 principal, $2 method, $3 request id
SELECT fingerprint, response, expires_at IS NOT NULL AND expires_at <= (SELECT clock()) AS expired
FROM requests
WHERE principal = $1 AND method = $2 AND request_id = $3;

-- name: request_answer
-- Keep the answer, in the transaction of its effect.
-- $1 principal, $2 method, $3 request id, $4 response, $5 how long it may be shown (null: as long
-- as the row is kept)
UPDATE requests
SET response = $4, expires_at = clock() + $5::interval
WHERE principal = $1 AND method = $2 AND request_id = $3;

-- name: request_forget
-- Wipe answers whose time to be shown is over; the ids stay known. $1 limit
UPDATE requests
SET response = NULL
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM requests
    WHERE response IS NOT NULL AND expires_at <= (SELECT clock())
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
));

-- name: request_prune
-- Remove ids that no caller repeats any more. $1 age to keep (interval), $2 limit
DELETE FROM requests
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM requests
    WHERE created_at < (SELECT clock()) - $1::interval
    ORDER BY created_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
));
