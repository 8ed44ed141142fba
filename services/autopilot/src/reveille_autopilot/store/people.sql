-- name: put_collaborator
-- Lets a member change a rule; granting it again refreshes who did.
-- $1 autopilot_id, $2 user_id, $3 granted_by
INSERT INTO collaborators (autopilot_id, user_id, granted_by)
VALUES ($1, $2, $3)
ON CONFLICT (autopilot_id, user_id) DO UPDATE SET granted_by = excluded.granted_by
RETURNING autopilot_id, user_id, granted_by, created_at;

-- name: delete_collaborator
-- Takes the right back. $1 autopilot_id, $2 user_id
DELETE FROM collaborators WHERE autopilot_id = $1 AND user_id = $2;

-- name: list_collaborators
-- By user id. $1 autopilot_id, $2 after user_id or null, $3 limit
SELECT autopilot_id, user_id, granted_by, created_at
FROM collaborators
WHERE autopilot_id = $1 AND ($2::text IS NULL OR user_id > $2)
ORDER BY user_id
LIMIT $3;

-- name: collaborates
-- Which rules a user was let in to. $1 autopilot_ids, $2 user_id
SELECT autopilot_id FROM collaborators WHERE autopilot_id = ANY($1::uuid[]) AND user_id = $2;

-- name: clear_subscribers
-- All followers of a rule go, before the new list comes. $1 autopilot_id
DELETE FROM subscribers WHERE autopilot_id = $1;

-- name: insert_subscribers
-- The new list. $1 autopilot_id, $2 user_ids
INSERT INTO subscribers (autopilot_id, user_id)
SELECT $1, i.user_id FROM unnest($2::text[]) AS i (user_id);

-- name: subscribers_of
-- Who follows rules. $1 autopilot_ids
SELECT autopilot_id, user_id
FROM subscribers
WHERE autopilot_id = ANY($1::uuid[])
ORDER BY autopilot_id, user_id;

-- name: hold_members
-- Those users who are members, and stay so until the transaction ends: what it grants them goes with
-- them when they leave. $1 workspace_id, $2 user_ids
SELECT user_id
FROM members
WHERE workspace_id = $1 AND user_id = ANY($2::text[])
ORDER BY user_id
FOR KEY SHARE;

-- name: remove_member
-- The membership goes. $1 workspace_id, $2 user_id
DELETE FROM members WHERE workspace_id = $1 AND user_id = $2;

-- name: forget_person
-- Whoever is no member any more collaborates on nothing and follows nothing there.
-- $1 workspace_id, $2 user_id
WITH gone AS (
    DELETE FROM collaborators c
    USING autopilots a
    WHERE a.id = c.autopilot_id AND a.workspace_id = $1 AND c.user_id = $2
    RETURNING c.autopilot_id
)
DELETE FROM subscribers s
USING autopilots a
WHERE a.id = s.autopilot_id AND a.workspace_id = $1 AND s.user_id = $2;

-- name: other_owner
-- An owner of a workspace beside one, the longest-standing. $1 workspace_id, $2 user_id
SELECT user_id
FROM members
WHERE workspace_id = $1 AND role = 'owner' AND user_id <> $2
ORDER BY created_at, user_id
LIMIT 1;
