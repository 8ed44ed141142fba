-- A run whose delivery was purged is cancelled, and hands back its slot as one that was given up does.

ALTER TABLE runs
    DROP CONSTRAINT runs_slot_check,
    ADD CONSTRAINT runs_slot_check CHECK (
        given_up_at IS NULL
        OR (state IN ('failed', 'cancelled') AND planned_at IS NULL AND delivery_id IS NULL)
    );
