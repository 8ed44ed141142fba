-- name: insert_comment
-- Something is said. $1 id, $2 issue, $3 workspace, $4 author's kind, $5 author, $6 run, $7 body
INSERT INTO issue_comments (comment_id, issue_id, workspace_id, author_kind, author_id, run_id, body)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING comment_id, issue_id, workspace_id, author_kind, author_id, run_id, body, created_at;

-- name: find_comments
-- Comments by id. $1 ids
SELECT comment_id, issue_id, workspace_id, author_kind, author_id, run_id, body, created_at
FROM issue_comments
WHERE comment_id = ANY($1::uuid[]);

-- name: list_comments
-- A page of an issue's comments, oldest first. $1 issue, $2 id after which it starts (null: oldest),
-- $3 limit
SELECT comment_id, issue_id, workspace_id, author_kind, author_id, run_id, body, created_at
FROM issue_comments
WHERE issue_id = $1 AND ($2::uuid IS NULL OR comment_id > $2)
ORDER BY comment_id
LIMIT $3;
