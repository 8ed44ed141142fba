-- name: stored
-- Webhook runs, those with somebody who answers, and the events of their admission.
SELECT count(*) AS runs, count(*) FILTER (WHERE r.accountable_user_id IS NOT NULL) AS answered,
       (SELECT count(*) FROM autopilot.feed AS f
        WHERE f.type = 'autopilot.run.admitted' AND f.occurrence_key LIKE 'webhook:%') AS events
FROM autopilot.runs AS r
WHERE r.occurrence_key LIKE 'webhook:%';
