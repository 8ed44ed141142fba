-- How far this service has followed the feeds of others. A consuming service's migration contains
-- this text as it stands.
CREATE TABLE cursors (
    source text PRIMARY KEY,
    cursor text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock()
);
