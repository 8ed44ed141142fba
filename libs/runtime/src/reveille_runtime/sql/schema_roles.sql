-- One schema, its owner (no login: only migrations act as it) and its application role (data only).
-- The caller sets reveille.schema, and the SCRAM verifier in reveille.role_verifier; empty keeps it.
DO $$
DECLARE
    schema_name text := current_setting('reveille.schema');
    owner_role text := format('reveille_%s_owner', schema_name);
    app_role text := format('reveille_%s_app', schema_name);
    verifier text := nullif(current_setting('reveille.role_verifier', true), '');
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = owner_role) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', owner_role);
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = app_role) THEN
        EXECUTE format('CREATE ROLE %I LOGIN', app_role);
    END IF;
    IF verifier IS NOT NULL THEN
        EXECUTE format('ALTER ROLE %I PASSWORD %L', app_role, verifier);
    END IF;
    EXECUTE format('GRANT %I TO reveille_migrator', owner_role);
    -- An administrator of a managed server is no superuser, and must be a member to give away.
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT %I TO CURRENT_USER', owner_role);
    END IF;

    -- On the role, not in the session: they hold in every pool and behind every pooler.
    EXECUTE format('ALTER ROLE %I SET search_path = %I', app_role, schema_name);
    EXECUTE format('ALTER ROLE %I SET statement_timeout = ''30s''', app_role);
    EXECUTE format('ALTER ROLE %I SET lock_timeout = ''5s''', app_role);
    -- A process that is frozen amid a transaction holds its locks until then; none of ours waits for
    -- anything but the database while it is in one.
    EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''10s''', app_role);
    -- A plan that was made while a table was empty is kept as the table grows. Whatever a service
    -- asks for has its index; without one a table is still read whole.
    EXECUTE format('ALTER ROLE %I SET enable_seqscan = off', app_role);
    EXECUTE format('ALTER ROLE %I SET jit = off', app_role);

    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I AUTHORIZATION %I', schema_name, owner_role);
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), app_role);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', schema_name, app_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I'
                   ' GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO %I',
                   owner_role, schema_name, app_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I'
                   ' GRANT USAGE ON SEQUENCES TO %I', owner_role, schema_name, app_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I'
                   ' REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC', owner_role);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I'
                   ' GRANT EXECUTE ON FUNCTIONS TO %I', owner_role, schema_name, app_role);
END
$$;
