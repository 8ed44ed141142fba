-- name: open_blockers
-- What issues still wait for: only `done` resolves a blocker. $1 issues
SELECT r.issue_id, r.blocker_issue_id, b.identifier, b.title, b.status
FROM issue_relations r JOIN issues b ON b.issue_id = r.blocker_issue_id
WHERE r.issue_id = ANY($1::uuid[]) AND b.status <> 'done'
ORDER BY r.issue_id, r.blocker_issue_id;
