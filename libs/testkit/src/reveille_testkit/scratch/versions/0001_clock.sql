-- The database's clock, which a test may move for its own connections.
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp()
        + coalesce(nullif(current_setting('reveille.clock_offset', true), ''), '0')::interval $$;
