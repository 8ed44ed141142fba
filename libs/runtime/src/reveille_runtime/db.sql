-- name: database_now
-- The clock that every predicate uses.
SELECT clock();

-- name: schema_version
-- Which migration the schema is at; the application's search_path is its own schema alone.
SELECT version_num FROM alembic_version;
