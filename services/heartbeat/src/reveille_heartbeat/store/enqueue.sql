-- name: take_idempotency_keys
-- Calls with the same key go one after the other, so that the second finds what the first has made.
-- $1 keys, sorted
SELECT count(pg_advisory_xact_lock(hashtextextended(k, 0)))
FROM unnest($1::text[]) AS k;

-- name: merge_wakes
-- What joined a wake becomes part of it; the caller holds the lock under which wakes join, and has
-- read what is merged. $1 wakeups, $2 how many joined each, $3 comments (as array literals),
-- $4 whether each begins a fresh session, $5 contexts, $6 bytes that its run is told by them
UPDATE wakeup_requests w
SET coalesced_count = w.coalesced_count + m.joined,
    comment_ids = m.comment_ids::uuid[],
    fresh_session = m.fresh_session, context = m.context, told_bytes = w.told_bytes + m.told_bytes
FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::boolean[], $5::jsonb[], $6::bigint[])
    AS m (wakeup_id, joined, comment_ids, fresh_session, context, told_bytes)
WHERE w.wakeup_id = m.wakeup_id;

-- name: leave_wake
-- What had joined a wake was called off: its words are not told with it any more; its comments are, for
-- they are the issue's. The caller holds the locks of both. $1 the one joined, $2 the one that leaves
UPDATE wakeup_requests w
SET coalesced_count = greatest(w.coalesced_count - 1, 0),
    told_bytes = greatest(w.told_bytes - l.words, 0)
FROM (
    SELECT octet_length(p.prompt) + octet_length(p.body) + (
        SELECT coalesce(sum(octet_length(f.key) + octet_length(f.value)), 0)
        FROM jsonb_each_text(p.facts) AS f
    ) AS words
    FROM wakeup_payloads p WHERE p.wakeup_id = $2
) l
WHERE w.wakeup_id = $1 AND w.finished_at IS NULL;

-- name: hurry_retries
-- A person waits: the next attempt does not wait for its time any longer. $1 runs
UPDATE runs SET scheduled_retry_at = clock()
WHERE run_id = ANY($1::uuid[]) AND state = 'scheduled_retry' AND scheduled_retry_at > clock();

-- name: note_timers
-- The timers of these agents have looked, and found nothing to do. $1 agents, whose locks are held
UPDATE agents SET last_timer_fired_at = clock() WHERE agent_id = ANY($1::uuid[]);
