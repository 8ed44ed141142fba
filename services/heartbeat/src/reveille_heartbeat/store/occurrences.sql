-- name: take_occurrences
-- The first to take a key makes its object; a key that is missing in the answer was there before.
-- Sorted, so that two batches with the same keys cannot wait for each other.
-- $1 workspaces, $2 keys, $3 wakeups, $4 issues
INSERT INTO occurrences (workspace_id, occurrence_key, wakeup_id, issue_id)
SELECT o.workspace_id, o.occurrence_key, o.wakeup_id, o.issue_id
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[])
    AS o (workspace_id, occurrence_key, wakeup_id, issue_id)
ORDER BY o.workspace_id, o.occurrence_key
ON CONFLICT DO NOTHING
RETURNING workspace_id, occurrence_key;

-- name: find_occurrences
-- What keys have made; lateral, so that no plan made for a small table reads a large one whole.
-- $1 workspaces, $2 keys
SELECT o.workspace_id, o.occurrence_key, o.wakeup_id, o.issue_id, o.cancelled_at
FROM unnest($1::uuid[], $2::text[]) AS k (workspace_id, occurrence_key)
CROSS JOIN LATERAL (
    SELECT workspace_id, occurrence_key, wakeup_id, issue_id, cancelled_at FROM occurrences
    WHERE workspace_id = k.workspace_id AND occurrence_key = k.occurrence_key
    LIMIT 1
) o;

-- name: lock_occurrence
-- A cancellation and a late enqueue meet here. $1 workspace, $2 key
SELECT wakeup_id, issue_id, cancelled_at FROM occurrences
WHERE workspace_id = $1 AND occurrence_key = $2
FOR UPDATE;

-- name: record_cancelled_occurrence
-- A key that nobody has used yet is used up from now on; no row when somebody has.
-- $1 workspace, $2 key
INSERT INTO occurrences (workspace_id, occurrence_key, cancelled_at)
VALUES ($1, $2, clock())
ON CONFLICT DO NOTHING
RETURNING occurrence_key;

-- name: cancel_occurrence
-- Remember that somebody wanted it to end. $1 workspace, $2 key
UPDATE occurrences SET cancelled_at = coalesce(cancelled_at, clock())
WHERE workspace_id = $1 AND occurrence_key = $2;

-- name: link_cancelled_occurrences
-- A late wish under a cancelled key leaves its row, and the key names it; the first one stays.
-- $1 workspaces, $2 keys, $3 wakeups
UPDATE occurrences o SET wakeup_id = k.wakeup_id
FROM unnest($1::uuid[], $2::text[], $3::uuid[]) AS k (workspace_id, occurrence_key, wakeup_id)
WHERE o.workspace_id = k.workspace_id AND o.occurrence_key = k.occurrence_key
    AND o.wakeup_id IS NULL
RETURNING o.workspace_id, o.occurrence_key;

-- name: explain_occurrence
-- A key without its workspace, as a person asks for it. $1 key
SELECT workspace_id, occurrence_key, wakeup_id, issue_id, cancelled_at FROM occurrences
WHERE occurrence_key = $1;
