-- What the hook of a webhook trigger does otherwise than usual, in the gateway's words.

ALTER TABLE triggers ADD COLUMN endpoint_options jsonb NOT NULL DEFAULT '{}';
