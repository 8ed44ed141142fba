-- name: open_blockers
-- What issues still wait for: only `done` resolves a blocker. Lateral, so that no plan reads all
-- issues. $1 issues
SELECT r.issue_id, r.blocker_issue_id, b.identifier, b.title, b.status
FROM issue_relations r
CROSS JOIN LATERAL (
    SELECT identifier, title, status FROM issues WHERE issue_id = r.blocker_issue_id LIMIT 1
) b
WHERE r.issue_id = ANY($1::uuid[]) AND b.status <> 'done'
ORDER BY r.issue_id, r.blocker_issue_id;

-- name: dependents
-- What issues block. $1 issues
SELECT DISTINCT issue_id FROM issue_relations WHERE blocker_issue_id = ANY($1::uuid[]);

-- name: resolved_blockers
-- Issues all of whose blockers are done, with them and when they ended. $1 issues
SELECT i.issue_id, b.facts
FROM unnest($1::uuid[]) AS i (issue_id)
CROSS JOIN LATERAL (
    SELECT bool_and(b.status = 'done') AS done,
        array_agg(b.issue_id || '@' || (extract(epoch FROM b.ended_at) * 1000000)::bigint
            ORDER BY b.issue_id) AS facts
    FROM issue_relations r CROSS JOIN LATERAL (
        -- One at a time: whatever the statistics say, nobody reads all issues for this.
        SELECT o.issue_id, o.status, o.ended_at FROM issues o
        WHERE o.issue_id = r.blocker_issue_id
        LIMIT 1
    ) b
    WHERE r.issue_id = i.issue_id
) b
WHERE b.done;

-- name: is_blocked_by
-- Whether an issue waits for another, by whatever way. $1 issue, $2 the other
WITH RECURSIVE waits_for (issue_id) AS (
    SELECT blocker_issue_id FROM issue_relations WHERE issue_id = $1
    UNION
    SELECT r.blocker_issue_id FROM waits_for w JOIN issue_relations r ON r.issue_id = w.issue_id
)
SELECT EXISTS (SELECT FROM waits_for WHERE issue_id = $2);

-- name: count_blockers
-- By how many issues one is blocked. $1 issue
SELECT count(*) FROM issue_relations WHERE issue_id = $1;

-- name: count_dependents
-- How many issues one blocks. $1 issue
SELECT count(*) FROM issue_relations WHERE blocker_issue_id = $1;

-- name: insert_relations
-- Issues that block another; those that do already are missing. $1 blocked issue, $2 blockers
INSERT INTO issue_relations (issue_id, blocker_issue_id)
SELECT $1, b.issue_id FROM unnest($2::uuid[]) AS b (issue_id)
ON CONFLICT DO NOTHING
RETURNING blocker_issue_id;

-- name: delete_relation
-- One issue blocks another no more; no row when it did not. $1 blocked issue, $2 blocker
DELETE FROM issue_relations WHERE issue_id = $1 AND blocker_issue_id = $2;

-- name: delete_relations_of
-- A deleted issue neither blocks nor waits; gives what it blocked. $1 issue
DELETE FROM issue_relations WHERE issue_id = $1 OR blocker_issue_id = $1
RETURNING issue_id;
