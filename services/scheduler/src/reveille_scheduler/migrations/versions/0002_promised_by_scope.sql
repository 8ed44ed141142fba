-- A scope that is at work has its promised attempts wait for its place, a thousand of them after a
-- backfill. By scope they are passed over at once, and the next one of a scope is found by one look.

CREATE INDEX executions_promised_scope
    ON executions (job_name, scope_kind, scope_id, state, next_retry_at, plan_time)
    WHERE next_retry_at IS NOT NULL;
