-- name: holds_over_issues
-- The active holds on issues and on what is above them, a pause first and then the nearest; nothing
-- is walked while nothing is held. $1 issues, $2 levels to walk up at most
WITH RECURSIVE above (issue_id, at_issue_id, parent_issue_id, depth) AS (
    SELECT i.issue_id, i.issue_id, i.parent_issue_id, 0 FROM issues i
    WHERE i.issue_id = ANY($1::uuid[])
        AND EXISTS (SELECT FROM issue_tree_holds h WHERE h.status = 'active')
    UNION ALL
    SELECT a.issue_id, p.issue_id, p.parent_issue_id, a.depth + 1
    FROM above a CROSS JOIN LATERAL (
        -- One at a time: whatever the statistics say, nobody reads all issues for this.
        SELECT i.issue_id, i.parent_issue_id FROM issues i WHERE i.issue_id = a.parent_issue_id
        LIMIT 1
    ) p
    WHERE a.depth < $2
)
SELECT a.issue_id, h.hold_id, h.mode, h.reason, h.root_issue_id, r.identifier AS root_identifier
FROM above a
JOIN issue_tree_holds h ON h.root_issue_id = a.at_issue_id AND h.status = 'active'
JOIN issues r ON r.issue_id = h.root_issue_id
ORDER BY a.issue_id, (h.mode <> 'pause'), a.depth;

-- name: issues_below
-- An issue and what is below it, with the depth. $1 root, $2 levels to go down at most, $3 limit
WITH RECURSIVE below (issue_id, depth) AS (
    SELECT issue_id, 0 FROM issues WHERE issue_id = $1
    UNION ALL
    SELECT c.issue_id, b.depth + 1
    FROM below b JOIN issues c ON c.parent_issue_id = b.issue_id
    WHERE b.depth < $2
)
SELECT issue_id, depth FROM below LIMIT $3;

-- name: active_hold
-- The hold whose root an issue is. $1 issue
SELECT hold_id FROM issue_tree_holds WHERE root_issue_id = $1 AND status = 'active';

-- name: insert_hold
-- A hold comes into force. $1 id, $2 workspace, $3 root,
-- $4 mode, $5 reason, $6 whether runs at work may finish, $7 who makes it
INSERT INTO issue_tree_holds (hold_id, workspace_id, root_issue_id, mode, reason, let_runs_finish,
    created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING hold_id, root_issue_id, mode, reason, status, created_by, released_by, created_at,
    released_at;

-- name: insert_hold_members
-- What it found. $1 hold, $2 issues, $3 depths, $4 statuses before, $5 and after, $6 why skipped,
-- $7 when ended
INSERT INTO issue_tree_hold_members (hold_id, issue_id, depth, status_before, status_after,
    skip_reason, ended_at)
SELECT $1, m.issue_id, m.depth, m.status_before, m.status_after, m.skip_reason, m.ended_at
FROM unnest($2::uuid[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
    AS m (issue_id, depth, status_before, status_after, skip_reason, ended_at);

-- name: hold_members
-- What a hold found, from the top. $1 hold
SELECT issue_id, depth, status_before, status_after, skip_reason, ended_at
FROM issue_tree_hold_members
WHERE hold_id = $1
ORDER BY depth, issue_id;

-- name: release_hold
-- It is in force no more; no row when there is none. $1 root, $2 who releases it
UPDATE issue_tree_holds
SET status = 'released', released_by = $2, released_at = clock()
WHERE root_issue_id = $1 AND status = 'active'
RETURNING hold_id, root_issue_id, mode, reason, status, created_by, released_by, created_at,
    released_at;

-- name: release_holds_of_issue
-- A deleted issue holds nothing any more. $1 issue, $2 who deletes it
UPDATE issue_tree_holds
SET status = 'released', released_by = $2, released_at = clock()
WHERE root_issue_id = $1 AND status = 'active';

-- name: note_changed_members
-- What a release did not give back. $1 hold, $2 issues
UPDATE issue_tree_hold_members SET skip_reason = 'changed_after_cancel'
WHERE hold_id = $1 AND issue_id = ANY($2::uuid[]);

-- name: unsettled_with_work
-- The wakes of issues that have not ended, and whether an attempt is at work. $1 issues
SELECT w.wakeup_id, w.context, EXISTS (
        SELECT FROM runs r WHERE r.run_id = w.run_id AND r.occupied
    ) AS at_work
FROM wakeup_requests w
WHERE w.issue_id = ANY($1::uuid[]) AND w.finished_at IS NULL AND w.state <> 'coalesced'
ORDER BY w.wakeup_id;

-- name: wakes_swallowed
-- Issues for which a hold has refused or cancelled wakes. $1 issues, $2 since when
SELECT DISTINCT issue_id FROM wakeup_requests
WHERE issue_id = ANY($1::uuid[]) AND finished_at >= $2
    AND reason IN ('issue_tree_held', 'issue_cancelled');
