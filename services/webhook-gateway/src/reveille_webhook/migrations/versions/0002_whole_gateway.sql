-- What hooks may be told, what holds loops, and what replays and explanations need.

ALTER TABLE endpoints
    -- How a sender without a row of its own signs: header, algorithm, encoding, prefix, separator, event.
    ADD COLUMN generic jsonb,
    ADD COLUMN refuses_copies boolean NOT NULL DEFAULT false,
    -- NULL: as the gateway's settings say; so for the budget.
    ADD COLUMN rate_per_minute integer CHECK (rate_per_minute > 0),
    ADD COLUMN hourly_budget integer CHECK (hourly_budget > 0),
    ADD COLUMN lane_path text,
    ADD COLUMN excluded_senders text[] NOT NULL DEFAULT '{}',
    ADD COLUMN own_markers text[] NOT NULL DEFAULT '{}',
    -- The bucket: the next moment that is nobody's yet.
    ADD COLUMN next_slot_at timestamptz,
    -- The breaker's window: since when it counts, and what it counted.
    ADD COLUMN window_started_at timestamptz,
    ADD COLUMN window_count integer NOT NULL DEFAULT 0,
    ADD COLUMN tripped_at timestamptz,
    -- Autopilot did not know it; until then it is as if it were not there.
    ADD COLUMN disowned_until timestamptz;

ALTER TABLE deliveries
    ADD COLUMN sender text NOT NULL DEFAULT '',
    ADD COLUMN sender_retries integer NOT NULL DEFAULT 0 CHECK (sender_retries >= 0),
    -- SHA-256 of hook and signed content, where the signature does not cover the sender's id.
    ADD COLUMN content_key bytea CHECK (length(content_key) = 32),
    ADD COLUMN content_once boolean NOT NULL DEFAULT false,
    ADD COLUMN content_copy_of uuid,
    ADD COLUMN lane_key text CHECK (length(lane_key) BETWEEN 1 AND 255),
    -- Its moment within the hook's rate is its own already.
    ADD COLUMN slotted boolean NOT NULL DEFAULT false,
    ADD COLUMN replayed_from uuid,
    -- Whether it keeps its sender's id. A column of its own, so that a judgement, which gives a
    -- delivery its run, changes nothing that an index looks at.
    ADD COLUMN holds_key boolean NOT NULL GENERATED ALWAYS AS (
        state IN ('queued', 'held', 'dispatched') OR (state = 'failed' AND run_id IS NOT NULL)
    ) STORED,
    -- Why its signature failed, in codes.
    ADD COLUMN signature_notes text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT deliveries_state_check,
    ADD CONSTRAINT deliveries_state_check
        CHECK (state IN ('queued', 'held', 'dispatched', 'ignored', 'rejected', 'failed')),
    DROP CONSTRAINT deliveries_check,
    ADD CONSTRAINT deliveries_finished
        CHECK ((finished_at IS NULL) = (state IN ('queued', 'held'))),
    ADD CONSTRAINT deliveries_once_check CHECK (NOT content_once OR content_key IS NOT NULL);

-- Room for the judgement beside each row, so that no index has to follow it.
ALTER TABLE deliveries SET (fillfactor = 50);

-- A held delivery keeps its sender's id as well.
CREATE UNIQUE INDEX deliveries_live_key ON deliveries (endpoint_id, dedupe_key)
WHERE dedupe_key IS NOT NULL AND holds_key;
DROP INDEX deliveries_dedupe;

-- Of signed content that may come once, one delivery lives.
CREATE UNIQUE INDEX deliveries_live_content ON deliveries (content_key)
WHERE content_once AND holds_key;
CREATE INDEX deliveries_by_content ON deliveries USING hash (content_key)
WHERE content_key IS NOT NULL;
CREATE INDEX deliveries_by_key ON deliveries USING hash (dedupe_key)
WHERE dedupe_key IS NOT NULL;
CREATE INDEX deliveries_by_body ON deliveries USING hash (body_sha256);
CREATE INDEX deliveries_held ON deliveries (endpoint_id, received_at, id) WHERE state = 'held';
-- Runs' ids follow time, as deliveries do; a summary of pages is no index that an update would have
-- to follow.
DROP INDEX deliveries_by_run;
CREATE INDEX deliveries_by_run ON deliveries USING brin (run_id)
WITH (pages_per_range = 32, autosummarize = on);
-- What stands before a delivery in its lane.
CREATE INDEX deliveries_lane ON deliveries (endpoint_id, lane_key, received_at, id)
WHERE lane_key IS NOT NULL AND state = 'queued';
-- What retention looks at.
CREATE INDEX deliveries_finished_at ON deliveries (finished_at, id) WHERE finished_at IS NOT NULL;

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
