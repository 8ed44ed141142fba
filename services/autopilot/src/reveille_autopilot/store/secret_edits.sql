-- name: begin_secret_edit
-- An edit that the gateway is asked for next. One that was begun before, and may have come to
-- nothing, is from now on whoever asks now's; one that a version tells of stays as it is.
-- $1 trigger_id, $2 secret_id, $3 change, $4 editor
INSERT INTO secret_edits (trigger_id, secret_id, change, editor_user_id)
VALUES ($1, $2, $3, $4)
ON CONFLICT (trigger_id, secret_id, change) DO UPDATE
SET editor_user_id = excluded.editor_user_id, created_at = excluded.created_at
WHERE secret_edits.recorded_at IS NULL;

-- name: open_secret_edits
-- What the gateway was asked for and no version tells of yet. $1 trigger_id
SELECT secret_id, change
FROM secret_edits
WHERE trigger_id = $1 AND recorded_at IS NULL
ORDER BY created_at, secret_id;

-- name: secret_removal_recorded
-- Whether a version tells that a secret was removed. $1 trigger_id, $2 secret_id
SELECT EXISTS (
    SELECT FROM secret_edits
    WHERE trigger_id = $1 AND secret_id = $2 AND change = 'secret_removed'
        AND recorded_at IS NOT NULL
);

-- name: record_secret_edit
-- For whoever writes the version: of several who see the edit done, only the first gets its editor,
-- and when it was begun.
-- $1 trigger_id, $2 secret_id, $3 change, $4 recorded_at
UPDATE secret_edits
SET recorded_at = $4
WHERE trigger_id = $1 AND secret_id = $2 AND change = $3 AND recorded_at IS NULL
RETURNING editor_user_id, created_at;

-- name: unheard_secret_edits
-- Triggers with edits that no version tells of, though whoever asked for them has given up: those of
-- the newest ones first. $1 how long a caller may take, $2 how long a look is worth it, $3 limit
SELECT e.trigger_id
FROM secret_edits e
JOIN triggers t ON t.id = e.trigger_id AND t.deleted_at IS NULL
WHERE e.recorded_at IS NULL AND e.created_at < (SELECT clock()) - $1::interval
    AND e.created_at > (SELECT clock()) - $2::interval
GROUP BY e.trigger_id
ORDER BY max(e.created_at) DESC
LIMIT $3;
