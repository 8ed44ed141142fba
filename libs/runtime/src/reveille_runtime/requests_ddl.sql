-- What callers asked for by request_id, and the answers they got. A service's migration contains
-- this text as it stands; it needs the schema's clock() function.
CREATE TABLE requests (
    principal text NOT NULL,
    method text NOT NULL,
    request_id text NOT NULL CHECK (length(request_id) BETWEEN 1 AND 128),
    fingerprint bytea NOT NULL,
    -- NULL once an answer that had to be forgotten is.
    response bytea,
    expires_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (principal, method, request_id)
);
CREATE INDEX requests_created_at ON requests (created_at);
CREATE INDEX requests_expires_at ON requests (expires_at) WHERE response IS NOT NULL;
