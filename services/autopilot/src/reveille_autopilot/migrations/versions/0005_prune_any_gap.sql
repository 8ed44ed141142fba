-- A version is forgotten by the next one that is still kept. By its direct successor it was not: one
-- that was forgotten first, while a run still held its predecessor, left that one for ever.

CREATE OR REPLACE FUNCTION prune_rule_versions(keep interval, most integer) RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = autopilot AS $$
    WITH gone AS (
        DELETE FROM rule_versions
        WHERE ctid = ANY(ARRAY(
            SELECT v.ctid
            FROM rule_versions v
            CROSS JOIN LATERAL (
                SELECT l.created_at
                FROM rule_versions l
                WHERE l.autopilot_id = v.autopilot_id AND l.sequence > v.sequence
                ORDER BY l.sequence
                LIMIT 1
            ) n
            WHERE v.created_at < (SELECT clock()) - keep AND n.created_at < (SELECT clock()) - keep
                AND NOT EXISTS (
                    SELECT FROM runs r
                    WHERE r.autopilot_id = v.autopilot_id AND r.rule_version_id = v.id
                        AND r.id < (
                            lpad(
                                to_hex((extract(epoch FROM n.created_at) * 1000)::bigint + 86400000),
                                12, '0'
                            ) || repeat('0', 20)
                        )::uuid
                )
            ORDER BY v.created_at
            LIMIT most
        ))
        RETURNING id
    )
    SELECT count(*)::integer FROM gone
$$;
