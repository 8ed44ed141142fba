-- What waited before its bytes were counted counts from now on: a claim reads no more of it at once than
-- of any other. Sizes alone are read, nothing is unpacked for them but the facts.

UPDATE wakeup_requests w
SET told_bytes = (
        SELECT coalesce(sum(octet_length(p.prompt) + octet_length(p.body) + (
            SELECT coalesce(sum(octet_length(f.key) + octet_length(f.value)), 0)
            FROM jsonb_each_text(p.facts) AS f
        )), 0)
        FROM wakeup_payloads p
        WHERE p.wakeup_id = w.wakeup_id OR p.wakeup_id IN (
            SELECT j.wakeup_id FROM wakeup_requests j
            WHERE j.joined_wakeup_id = w.wakeup_id AND j.state = 'coalesced'
        )
    ) + (
        SELECT coalesce(sum(octet_length(c.body)), 0) FROM issue_comments c
        WHERE c.comment_id = ANY(w.comment_ids)
    )
WHERE w.finished_at IS NULL AND w.state <> 'coalesced';
