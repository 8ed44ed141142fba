-- name: claim
-- Takes up deliveries that are due, each under a fresh token; the attempt is counted here, so that
-- a crash counts too. A delivery that is seen first takes a moment out of its hook's bucket: now, or
-- one that it then waits for. Beyond the hook's budget of the hour it is held, and so is whatever
-- follows; one that people released, or that had a moment under another rate, goes on and does not
-- count. One that stands behind another in
-- its lane is not due, nor one that its own request may still be having judged. One whose moment is
-- far off begins to wait at that moment: from then on it has the whole patience for failures, and it
-- is judged anew, for its run may be given up before.
-- $1 lease length, $2 limit, $3 least available_at, $4 usual rate a minute, $5 usual budget an hour
-- (0 for no limit), $6 how long a request may take until the worker steps in, $7 from how late on a
-- moment is far off
WITH t AS MATERIALIZED (SELECT clock() AS moment),
due AS MATERIALIZED (
    SELECT d.ctid AS place, d.id, d.endpoint_id, d.available_at, d.slotted,
           NOT d.slotted AND d.queued_at > d.received_at AS released
    FROM deliveries AS d
    WHERE d.state = 'queued' AND d.lease_token IS NULL
      AND d.available_at <= (SELECT moment FROM t) AND d.available_at >= $3
      AND (d.admission IS NOT NULL OR d.replayed_from IS NOT NULL OR d.queued_at > d.received_at
           OR d.received_at <= (SELECT moment FROM t) - $6::interval)
      AND (d.lane_key IS NULL OR NOT EXISTS (
          SELECT FROM deliveries AS ahead
          WHERE ahead.endpoint_id = d.endpoint_id AND ahead.lane_key = d.lane_key
            AND ahead.state = 'queued'
            AND (ahead.received_at, ahead.id) < (d.received_at, d.id)))
    ORDER BY d.available_at
    LIMIT $2
    FOR UPDATE OF d SKIP LOCKED),
bucket AS MATERIALIZED (
    SELECT e.id, e.next_slot_at, e.window_started_at, e.window_count, e.tripped_at,
           coalesce(e.rate_per_minute, $4) AS rate, coalesce(e.hourly_budget, $5) AS budget
    FROM endpoints AS e
    WHERE e.id IN (SELECT endpoint_id FROM due WHERE NOT slotted)
      AND (coalesce(e.rate_per_minute, $4) > 0 OR coalesce(e.hourly_budget, $5) > 0)
    ORDER BY e.id
    FOR NO KEY UPDATE),
measured AS MATERIALIZED (
    SELECT b.id, b.tripped_at, b.budget,
           CASE WHEN b.rate > 0 THEN interval '1 minute' / b.rate END AS step,
           -- After a quiet minute, a whole minute's share may go at once.
           greatest(b.next_slot_at, t.moment - interval '1 minute'
                    + interval '1 minute' / greatest(b.rate, 1)) AS first_slot,
           b.window_started_at > t.moment - interval '1 hour' AS in_window,
           CASE WHEN b.window_started_at > t.moment - interval '1 hour'
                THEN b.window_count ELSE 0 END AS counted
    FROM bucket AS b, t),
judged AS MATERIALIZED (
    SELECT due.id, due.endpoint_id, due.available_at, due.released, m.id IS NOT NULL AS measured,
           m.id IS NOT NULL AND NOT due.released
           AND (m.tripped_at IS NOT NULL OR (m.budget > 0 AND m.counted + due.number > m.budget))
               AS held,
           m.first_slot, m.step
    FROM (SELECT id, endpoint_id, available_at, slotted, released,
                 row_number() OVER (PARTITION BY endpoint_id, slotted, released
                                    ORDER BY available_at, id) AS number
          FROM due) AS due
    LEFT JOIN measured AS m ON m.id = due.endpoint_id AND NOT due.slotted),
decided AS MATERIALIZED (
    SELECT f.id, f.endpoint_id, f.slot, f.released, f.measured,
           CASE WHEN NOT f.measured THEN 'take'
                WHEN f.held THEN 'hold'
                WHEN f.slot > t.moment THEN 'defer'
                ELSE 'take' END AS deed
    FROM (SELECT id, endpoint_id, released, measured, held,
                 first_slot + (row_number() OVER (PARTITION BY endpoint_id, measured, held
                                                  ORDER BY available_at, id) - 1) * step AS slot
          FROM judged) AS f, t),
spent AS (
    UPDATE endpoints AS e
    SET next_slot_at = CASE WHEN m.step IS NULL THEN e.next_slot_at
                            ELSE m.first_slot + s.passed * m.step END,
        window_started_at = CASE WHEN m.in_window THEN e.window_started_at ELSE t.moment END,
        window_count = m.counted + s.fired,
        tripped_at = CASE WHEN s.held > 0 THEN coalesce(m.tripped_at, t.moment)
                          ELSE m.tripped_at END
    FROM measured AS m
    JOIN (SELECT endpoint_id, count(*) FILTER (WHERE deed <> 'hold')::integer AS passed,
                 count(*) FILTER (WHERE deed <> 'hold' AND NOT released)::integer AS fired,
                 count(*) FILTER (WHERE deed = 'hold')::integer AS held
          FROM decided WHERE measured GROUP BY endpoint_id) AS s ON s.endpoint_id = m.id,
         t
    WHERE e.id = m.id)
UPDATE deliveries AS d
SET lease_token = CASE WHEN x.deed = 'take' THEN gen_random_uuid() END,
    lease_expires_at = CASE WHEN x.deed = 'take' THEN clock() + $1::interval END,
    dispatch_attempts = d.dispatch_attempts + CASE WHEN x.deed = 'take' THEN 1 ELSE 0 END,
    slotted = x.deed <> 'hold',
    available_at = CASE WHEN x.deed = 'defer' THEN x.slot ELSE d.available_at END,
    queued_at = CASE WHEN x.deed = 'defer' AND x.slot > d.queued_at + $7::interval THEN x.slot
                     ELSE d.queued_at END,
    admission = CASE WHEN x.deed = 'defer' AND x.slot > d.queued_at + $7::interval THEN NULL
                     ELSE d.admission END,
    state = CASE WHEN x.deed = 'hold' THEN 'held' ELSE d.state END,
    reason = CASE WHEN x.deed = 'hold' THEN 'loop_breaker' ELSE d.reason END,
    message = CASE x.deed WHEN 'hold' THEN 'its hook fired beyond its budget'
                          WHEN 'defer' THEN 'its hook is at its rate'
                          ELSE d.message END
FROM decided AS x
WHERE d.ctid = ANY (ARRAY(SELECT place FROM due)) AND d.id = x.id
RETURNING x.deed, d.id, d.lease_token, d.endpoint_id, d.workspace_id, d.event, d.action, d.actions,
          d.content_type, d.headers, d.body_bytes, d.body_sha256, d.received_at, d.queued_at,
          d.trace_carrier, d.dispatch_attempts, d.give_backs, d.run_id, d.admission,
          d.available_at;

-- name: backlog
-- How much is due, and for how long; counts end at a bound. $1 the bound
SELECT (SELECT count(*) FROM (
            SELECT FROM deliveries
            WHERE state = 'queued' AND lease_token IS NULL AND available_at <= (SELECT clock())
            LIMIT $1) AS due) AS due,
       (SELECT extract(epoch FROM clock() - min(available_at))::double precision FROM deliveries
        WHERE state = 'queued' AND lease_token IS NULL AND available_at <= (SELECT clock()))
           AS oldest,
       (SELECT count(*) FROM (
            SELECT FROM deliveries WHERE state = 'held' LIMIT $1) AS held) AS held;

-- name: bodies
-- The bodies that are about to travel. $1 ids
SELECT id, body FROM deliveries WHERE id = ANY ($1::uuid[]);

-- name: renew
-- Keeps leases alive; a row that is not returned is lost. $1 ids, $2 tokens, $3 lease length
UPDATE deliveries AS d
SET lease_expires_at = clock() + $3::interval
FROM unnest($1::uuid[], $2::uuid[]) AS held (id, token)
WHERE d.id = held.id AND d.lease_token = held.token
RETURNING d.id;

-- name: settle
-- The end of an attempt. The token alone is the fence: a row that is not returned was taken over.
-- $1 ids, $2 tokens, $3 states, $4 reasons, $5 messages, $6 attempts given back,
-- $7 times of the next attempt (or null), $8 judgements (null: as before), $9 run ids (likewise)
UPDATE deliveries AS d
SET state = done.state, reason = done.reason, message = done.message,
    dispatch_attempts = d.dispatch_attempts - done.given_back,
    give_backs = d.give_backs + done.given_back,
    available_at = coalesce(done.available_at, d.available_at),
    admission = coalesce(done.admission, d.admission),
    run_id = coalesce(done.run_id, d.run_id),
    lease_token = NULL, lease_expires_at = NULL,
    finished_at = CASE done.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::integer[],
            $7::timestamptz[], $8::text[], $9::uuid[])
     AS done (id, token, state, reason, message, given_back, available_at, admission, run_id)
WHERE d.id = done.id AND d.lease_token = done.token
RETURNING d.id;

-- name: expired
-- Claims whose lease has run out by the database's clock. $1 limit
SELECT id, lease_token, dispatch_attempts, (SELECT clock()) AS now
FROM deliveries
WHERE lease_token IS NOT NULL AND lease_expires_at < (SELECT clock())
ORDER BY lease_expires_at
LIMIT $1;

-- name: take_over
-- Frees claims whose holder is gone; the token and the lease are compared once more.
-- $1 ids, $2 tokens, $3 states, $4 reasons, $5 messages, $6 times of the next attempt (or null)
UPDATE deliveries AS d
SET state = gone.state, reason = gone.reason, message = gone.message,
    available_at = coalesce(gone.available_at, d.available_at),
    lease_token = NULL, lease_expires_at = NULL,
    finished_at = CASE gone.state WHEN 'queued' THEN NULL ELSE clock() END
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
     AS gone (id, token, state, reason, message, available_at)
WHERE d.id = gone.id AND d.lease_token = gone.token AND d.lease_expires_at < (SELECT clock())
RETURNING d.id;
