-- name: database_now
-- The clock that every predicate uses.
SELECT clock();

-- name: schema_version
-- Which migration the schema is at; the application's search_path is its own schema alone.
SELECT version_num FROM alembic_version;

-- name: array_types
-- All kinds of arrays that statements take, so that a new connection learns them in one go.
SELECT $1::boolean[], $2::bytea[], $3::smallint[], $4::integer[], $5::bigint[], $6::float8[],
       $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[], $11::jsonb[], $12::numeric[];
