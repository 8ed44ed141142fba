-- name: create_effects
-- What a handler did, one row a plan; `times` tells whether it was asked more than once.
CREATE TABLE public.effects (
    scope_id text, plan_time timestamptz, times integer NOT NULL DEFAULT 1,
    PRIMARY KEY (scope_id, plan_time)
);

-- name: insert_effects
-- One committed row for each plan. $1 scope ids, $2 plan times
INSERT INTO public.effects AS known (scope_id, plan_time)
SELECT new.scope_id, new.plan_time
FROM unnest($1::text[], $2::timestamptz[]) AS new (scope_id, plan_time)
ON CONFLICT (scope_id, plan_time) DO UPDATE SET times = known.times + 1;
