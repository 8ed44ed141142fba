-- name: holds_over_issues
-- The active holds on issues and on what is above them, a pause first and then the nearest; nothing
-- is walked while nothing is held. $1 issues, $2 levels to walk up at most
WITH RECURSIVE above (issue_id, at_issue_id, parent_issue_id, depth) AS (
    SELECT i.issue_id, i.issue_id, i.parent_issue_id, 0 FROM issues i
    WHERE i.issue_id = ANY($1::uuid[])
        AND EXISTS (SELECT FROM issue_tree_holds h WHERE h.status = 'active')
    UNION ALL
    SELECT a.issue_id, p.issue_id, p.parent_issue_id, a.depth + 1
    FROM above a JOIN issues p ON p.issue_id = a.parent_issue_id
    WHERE a.depth < $2
)
SELECT a.issue_id, h.hold_id, h.mode, h.reason, h.root_issue_id, r.identifier AS root_identifier
FROM above a
JOIN issue_tree_holds h ON h.root_issue_id = a.at_issue_id AND h.status = 'active'
JOIN issues r ON r.issue_id = h.root_issue_id
ORDER BY a.issue_id, (h.mode <> 'pause'), a.depth;
