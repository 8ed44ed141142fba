-- Since when somebody answers for a trigger, so that an edit which is recorded late takes it from nobody
-- who came later; null for the time before this was kept. And which edits of secrets no version tells
-- of yet, for those who look: mostly none.

ALTER TABLE triggers ADD COLUMN published_at timestamptz;
CREATE INDEX secret_edits_open_idx ON secret_edits (created_at) WHERE recorded_at IS NULL;
