-- A wakeup says how much its run is told, so that nobody has to look at what it carries to know that.
-- What waits already counts as nothing: it is told whole, as long as it is within the bound of one run.

ALTER TABLE wakeup_requests
    -- Bytes of its own words, of those of all that have joined it, and of its comments.
    ADD COLUMN told_bytes bigint NOT NULL DEFAULT 0;
