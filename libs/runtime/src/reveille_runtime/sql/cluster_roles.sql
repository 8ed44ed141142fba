-- The role that applies migrations. It inherits nothing: it becomes an owner by SET ROLE, on purpose.
-- The caller puts the password's SCRAM verifier into reveille.role_verifier; empty keeps what is set.
DO $$
DECLARE
    verifier text := nullif(current_setting('reveille.role_verifier', true), '');
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'reveille_migrator') THEN
        CREATE ROLE reveille_migrator LOGIN NOINHERIT;
    END IF;
    IF verifier IS NOT NULL THEN
        EXECUTE format('ALTER ROLE reveille_migrator PASSWORD %L', verifier);
    END IF;
    ALTER ROLE reveille_migrator SET idle_in_transaction_session_timeout = '60s';
    -- What PUBLIC may do by default is how one service would come to see another's names.
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO reveille_migrator', current_database());
    REVOKE ALL ON SCHEMA public FROM PUBLIC;
END
$$;
