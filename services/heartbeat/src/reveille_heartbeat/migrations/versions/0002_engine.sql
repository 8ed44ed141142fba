-- The whole engine: squads, projects, relations, holds, approvals, timers, retries, costs, daily logs.

ALTER TABLE workspaces
    ADD COLUMN status text NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'paused', 'archived'));

-- The one row that a claim locks first where a limit over all workspaces is set.
CREATE TABLE claim_gate (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
INSERT INTO claim_gate DEFAULT VALUES;

ALTER TABLE runtimes
    ADD COLUMN kind text NOT NULL DEFAULT 'remote' CHECK (kind IN ('local', 'remote')),
    -- Present and yet of no use, in its own words; empty when it can run agents.
    ADD COLUMN unusable_reason text NOT NULL DEFAULT '',
    ADD COLUMN metadata jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN updated_at timestamptz NOT NULL DEFAULT clock();
UPDATE runtimes SET kind = 'local' WHERE name = 'local';

ALTER TABLE agents
    ADD COLUMN state text NOT NULL DEFAULT 'active'
        CHECK (state IN ('active', 'paused', 'archived')),
    ADD COLUMN pause_reason text NOT NULL DEFAULT '',
    ADD COLUMN paused_at timestamptz,
    ADD COLUMN archived_at timestamptz,
    ADD COLUMN manager_agent_id uuid REFERENCES agents,
    -- Its heartbeat: whether and how often a timer wakes it, and what else may.
    ADD COLUMN timer_enabled boolean NOT NULL DEFAULT false,
    ADD COLUMN timer_interval interval NOT NULL DEFAULT '0' CHECK (timer_interval >= '0'),
    ADD COLUMN last_timer_fired_at timestamptz,
    ADD COLUMN skip_timer_without_work boolean NOT NULL DEFAULT false,
    ADD COLUMN wake_on_demand boolean NOT NULL DEFAULT true,
    -- Per UTC day; null is no limit, 0 is never.
    ADD COLUMN max_daily_runs integer CHECK (max_daily_runs >= 0),
    ADD COLUMN max_daily_cost_cents bigint CHECK (max_daily_cost_cents >= 0),
    ADD COLUMN cooldown interval NOT NULL DEFAULT '0' CHECK (cooldown >= '0'),
    -- How long a run of it may wait in the queue.
    ADD COLUMN start_limit interval NOT NULL DEFAULT '24 hours' CHECK (start_limit > '0'),
    ADD COLUMN max_turn_continuations smallint NOT NULL DEFAULT 2
        CHECK (max_turn_continuations BETWEEN 0 AND 10),
    ADD COLUMN max_turn_delay interval NOT NULL DEFAULT '1 second'
        CHECK (max_turn_delay BETWEEN '0' AND '5 minutes'),
    ADD COLUMN revision bigint NOT NULL DEFAULT 1,
    ADD COLUMN updated_at timestamptz NOT NULL DEFAULT clock(),
    ADD CHECK ((state = 'paused') = (paused_at IS NOT NULL)),
    ADD CHECK ((state = 'archived') = (archived_at IS NOT NULL)),
    ADD CHECK (manager_agent_id <> agent_id);
CREATE INDEX agents_runtime ON agents (runtime_id);
CREATE INDEX agents_manager ON agents (manager_agent_id) WHERE manager_agent_id IS NOT NULL;
-- When the next timer wake is due, as the time since an instant: unlike a timestamp plus an
-- interval, that depends on no session's time zone, and so can be indexed.
CREATE INDEX agents_timer ON agents (
    (coalesce(last_timer_fired_at, created_at) - timestamptz '2000-01-01 00:00:00+00'
        + timer_interval),
    agent_id
) WHERE timer_enabled AND timer_interval > '0' AND state = 'active';

CREATE TABLE squads (
    squad_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    leader_agent_id uuid NOT NULL REFERENCES agents,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'archived')),
    pause_reason text NOT NULL DEFAULT '',
    paused_at timestamptz,
    archived_at timestamptz,
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (workspace_id, name),
    CHECK ((state = 'paused') = (paused_at IS NOT NULL)),
    CHECK ((state = 'archived') = (archived_at IS NOT NULL))
);
CREATE INDEX squads_leader ON squads (leader_agent_id);

-- The leader is not repeated here.
CREATE TABLE squad_members (
    squad_id uuid NOT NULL REFERENCES squads,
    agent_id uuid NOT NULL REFERENCES agents,
    PRIMARY KEY (squad_id, agent_id)
);
CREATE INDEX squad_members_agent ON squad_members (agent_id);

CREATE TABLE projects (
    project_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    description text NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'archived')),
    archived_at timestamptz,
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    UNIQUE (workspace_id, name),
    CHECK ((state = 'archived') = (archived_at IS NOT NULL))
);

ALTER TABLE issues
    ADD COLUMN project_id uuid REFERENCES projects,
    ADD COLUMN parent_issue_id uuid REFERENCES issues,
    ADD COLUMN assignee_user_id text NOT NULL DEFAULT '',
    ADD COLUMN reviewer_agent_id uuid REFERENCES agents,
    ADD COLUMN reviewer_user_id text NOT NULL DEFAULT '',
    ADD COLUMN origin_kind text NOT NULL DEFAULT 'manual'
        CHECK (origin_kind IN ('manual', 'autopilot', 'agent')),
    ADD COLUMN origin_id text NOT NULL DEFAULT '',
    -- The attempt that owns the work; execution_run_id is the one that may execute now.
    ADD COLUMN checkout_run_id uuid,
    ADD COLUMN execution_locked_at timestamptz,
    ADD COLUMN started_at timestamptz,
    ADD COLUMN ended_at timestamptz,
    -- When something new was last said or changed by others than the agent at work.
    ADD COLUMN last_input_at timestamptz NOT NULL DEFAULT clock(),
    ADD COLUMN deleted_at timestamptz,
    ADD CHECK (assignee_agent_id IS NULL OR assignee_user_id = ''),
    ADD CHECK (reviewer_agent_id IS NULL OR reviewer_user_id = ''),
    ADD CHECK (parent_issue_id <> issue_id);
UPDATE issues SET origin_kind = 'autopilot' WHERE occurrence_key IS NOT NULL;
CREATE UNIQUE INDEX issues_identifier ON issues (identifier, workspace_id);
-- What waits for its agent to do it.
CREATE INDEX issues_to_do ON issues (assignee_agent_id)
    WHERE status IN ('todo', 'in_progress') AND deleted_at IS NULL;
CREATE INDEX issues_parent ON issues (parent_issue_id) WHERE parent_issue_id IS NOT NULL;
CREATE INDEX issues_project ON issues (project_id, issue_id DESC) WHERE project_id IS NOT NULL;
-- Stale locks are looked for here.
CREATE INDEX issues_locked ON issues (issue_id)
    WHERE execution_run_id IS NOT NULL OR checkout_run_id IS NOT NULL;

CREATE TABLE issue_subscribers (
    issue_id uuid NOT NULL REFERENCES issues,
    user_id text NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    PRIMARY KEY (issue_id, user_id)
);

CREATE TABLE issue_comments (
    comment_id uuid PRIMARY KEY,
    issue_id uuid NOT NULL REFERENCES issues,
    workspace_id uuid NOT NULL,
    author_kind text NOT NULL CHECK (author_kind IN ('user', 'agent', 'service', 'system')),
    -- A user, an agent or a service, by its kind.
    author_id text NOT NULL,
    -- The attempt that wrote it.
    run_id uuid,
    body text NOT NULL CHECK (char_length(body) BETWEEN 1 AND 100000),
    created_at timestamptz NOT NULL DEFAULT clock()
);
CREATE INDEX issue_comments_issue ON issue_comments (issue_id, comment_id);
CREATE INDEX issue_comments_run ON issue_comments (run_id) WHERE run_id IS NOT NULL;

-- `blocker_issue_id` blocks `issue_id`.
CREATE TABLE issue_relations (
    issue_id uuid NOT NULL REFERENCES issues,
    blocker_issue_id uuid NOT NULL REFERENCES issues,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (issue_id, blocker_issue_id),
    CHECK (issue_id <> blocker_issue_id)
);
CREATE INDEX issue_relations_blocker ON issue_relations (blocker_issue_id);

-- A hold on an issue and all below it.
CREATE TABLE issue_tree_holds (
    hold_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    root_issue_id uuid NOT NULL REFERENCES issues,
    mode text NOT NULL CHECK (mode IN ('pause', 'cancel')),
    reason text NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'released')),
    -- Whether runs at work may finish.
    let_runs_finish boolean NOT NULL DEFAULT false,
    created_by text NOT NULL,
    released_by text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock(),
    released_at timestamptz,
    CHECK ((status = 'released') = (released_at IS NOT NULL))
);
CREATE UNIQUE INDEX issue_tree_holds_active ON issue_tree_holds (root_issue_id)
    WHERE status = 'active';

-- What a hold found, so that its release can give back what it took.
CREATE TABLE issue_tree_hold_members (
    hold_id uuid NOT NULL REFERENCES issue_tree_holds,
    issue_id uuid NOT NULL REFERENCES issues,
    depth integer NOT NULL,
    status_before text NOT NULL,
    status_after text NOT NULL,
    skip_reason text NOT NULL DEFAULT '',
    -- When the hold ended it: as long as the issue says the same, nobody has changed it since.
    ended_at timestamptz,
    PRIMARY KEY (hold_id, issue_id)
);

CREATE TABLE approvals (
    approval_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    issue_id uuid REFERENCES issues,
    title text NOT NULL CHECK (char_length(title) BETWEEN 1 AND 200),
    description text NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending', 'revision_requested', 'approved', 'rejected', 'cancelled')),
    requested_by_user_id text NOT NULL DEFAULT '',
    requested_by_agent_id uuid REFERENCES agents,
    requested_by_run_id uuid,
    decided_by text NOT NULL DEFAULT '',
    note text NOT NULL DEFAULT '',
    revision bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock(),
    decided_at timestamptz,
    CHECK ((status = 'pending') = (decided_at IS NULL))
);
CREATE INDEX approvals_list ON approvals (workspace_id, approval_id DESC);
CREATE INDEX approvals_issue ON approvals (issue_id) WHERE issue_id IS NOT NULL;

ALTER TABLE wakeup_requests
    DROP CONSTRAINT wakeup_requests_source_check,
    ADD CONSTRAINT wakeup_requests_source_check
        CHECK (source IN ('timer', 'assignment', 'on_demand', 'automation')),
    ADD COLUMN squad_id uuid,
    ADD COLUMN requester_kind text NOT NULL DEFAULT 'service'
        CHECK (requester_kind IN ('user', 'agent', 'service', 'system')),
    ADD COLUMN requester_id text NOT NULL DEFAULT '',
    -- What keeps a conversation together; empty when nothing does.
    ADD COLUMN task_key text NOT NULL DEFAULT '',
    ADD COLUMN comment_ids uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN fresh_session boolean NOT NULL DEFAULT false,
    -- How many wakes it has absorbed.
    ADD COLUMN coalesced_count integer NOT NULL DEFAULT 0,
    -- What the decisions found and the agent should know, for example blockers.
    ADD COLUMN context jsonb NOT NULL DEFAULT '{}';
CREATE INDEX wakeup_requests_unsettled ON wakeup_requests (agent_id)
    WHERE finished_at IS NULL;
-- What may join: the same agent and issue, or the same agent and task.
DROP INDEX wakeup_requests_joinable;
CREATE INDEX wakeup_requests_joinable ON wakeup_requests (agent_id, issue_id, task_key)
    WHERE state IN ('queued', 'deferred', 'claimed') AND occurrence_key IS NULL;

ALTER TABLE runs
    DROP CONSTRAINT runs_state_check,
    ADD CONSTRAINT runs_state_check CHECK (state IN (
        'queued', 'scheduled_retry', 'running', 'succeeded', 'interrupted', 'failed', 'cancelled',
        'timed_out')),
    DROP CONSTRAINT runs_check,
    ADD CONSTRAINT runs_finished_check CHECK ((finished_at IS NOT NULL) = (state IN (
        'succeeded', 'interrupted', 'failed', 'cancelled', 'timed_out'))),
    DROP CONSTRAINT runs_check1,
    ADD CONSTRAINT runs_waiting_check
        CHECK (state NOT IN ('queued', 'scheduled_retry') OR NOT occupied),
    -- Due when its state is scheduled_retry.
    ADD COLUMN scheduled_retry_at timestamptz,
    -- Of a failure, by structured fields alone; empty when it did not fail.
    ADD COLUMN failure_class text NOT NULL DEFAULT '' CHECK (failure_class IN (
        '', 'transient', 'quota', 'refusal', 'credentials', 'configuration', 'max_turns', 'lost',
        'other')),
    -- The provider's own wish not to be asked earlier.
    ADD COLUMN retry_not_before timestamptz,
    ADD COLUMN comment_status text NOT NULL DEFAULT 'not_applicable' CHECK (comment_status IN (
        'not_applicable', 'satisfied', 'retry_queued', 'retry_exhausted')),
    -- Whether it left something on its issue that others can see.
    ADD COLUMN left_progress boolean NOT NULL DEFAULT false,
    ADD COLUMN last_output_at timestamptz,
    ADD COLUMN progress jsonb,
    ADD COLUMN progress_at timestamptz,
    ADD CONSTRAINT runs_retry_check
        CHECK ((state = 'scheduled_retry') <= (scheduled_retry_at IS NOT NULL));
CREATE INDEX runs_due_retry ON runs (scheduled_retry_at) WHERE state = 'scheduled_retry';
DROP INDEX runs_queued_issue;
-- To a planner with old statistics every index of queued runs, and every one of runs at work, looks
-- equally empty: so that a claim reads the right one, there is no other that would serve.
DROP INDEX runs_executor;
DROP INDEX runs_start_by;
CREATE INDEX runs_start_by ON runs (start_by) WHERE started_at IS NULL AND finished_at IS NULL;
-- Live on an issue: waiting in any way, or holding it.
CREATE INDEX runs_live_issue ON runs (issue_id)
    WHERE issue_id IS NOT NULL AND (state IN ('queued', 'scheduled_retry') OR occupied);
-- Which runs of today count against a daily limit, and how many of the newest left no trace.
CREATE INDEX runs_started ON runs (agent_id, started_at) WHERE started_at IS NOT NULL;

-- What attempts cost; one row per run, model and UTC day, so that a repeated report changes nothing.
CREATE TABLE cost_events (
    -- It is kept longer than the run.
    run_id uuid NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    day date NOT NULL,
    workspace_id uuid NOT NULL,
    agent_id uuid NOT NULL,
    issue_id uuid,
    input_tokens bigint NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
    cached_input_tokens bigint NOT NULL DEFAULT 0 CHECK (cached_input_tokens >= 0),
    output_tokens bigint NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
    -- Null: there was usage, and nobody told a price.
    cost_cents numeric(20, 6) CHECK (cost_cents >= 0),
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (run_id, provider, model, day)
);
CREATE INDEX cost_events_agent ON cost_events (agent_id, day);
CREATE INDEX cost_events_day ON cost_events (day);

-- Output by day, so that old output goes by dropping a partition. A run's chunks are all under the
-- day on which the run was made.
ALTER TABLE run_log_chunks RENAME TO run_log_chunks_before;
ALTER TABLE run_log_chunks_before RENAME CONSTRAINT run_log_chunks_pkey
    TO run_log_chunks_before_pkey;
CREATE TABLE run_log_chunks (
    run_id uuid NOT NULL,
    -- The default is for the release before, which goes on writing while this one comes.
    run_day date NOT NULL DEFAULT (clock() AT TIME ZONE 'UTC')::date,
    stream text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    start_offset bigint NOT NULL CHECK (start_offset >= 0),
    end_offset bigint NOT NULL CHECK (end_offset > start_offset),
    data bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (run_id, stream, start_offset, run_day)
) PARTITION BY RANGE (run_day);
CREATE TABLE run_log_chunks_other PARTITION OF run_log_chunks DEFAULT;
INSERT INTO run_log_chunks (run_id, run_day, stream, start_offset, end_offset, data, created_at)
SELECT c.run_id, (r.created_at AT TIME ZONE 'UTC')::date, c.stream, c.start_offset, c.end_offset,
    c.data, c.created_at
FROM run_log_chunks_before c JOIN runs r ON r.run_id = c.run_id;
DROP TABLE run_log_chunks_before;

-- The days from today on get partitions, unless they have them; what came to the catch-all of such a
-- day before goes along. Gives how many were made.
CREATE FUNCTION make_log_days(ahead integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = heartbeat AS $$
DECLARE
    day date;
    partition text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('heartbeat/run_log_chunks', 0));
    FOR day IN
        SELECT (clock() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, ahead) AS n
    LOOP
        partition := 'run_log_chunks_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL;
        -- Nothing of that day may come to the catch-all meanwhile.
        LOCK TABLE run_log_chunks_other IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('CREATE TABLE %I (LIKE run_log_chunks INCLUDING ALL)', partition);
        EXECUTE format(
            'WITH moved AS (DELETE FROM run_log_chunks_other WHERE run_day = $1'
            ' RETURNING run_id, run_day, stream, start_offset, end_offset, data, created_at)'
            ' INSERT INTO %I (run_id, run_day, stream, start_offset, end_offset, data, created_at)'
            ' SELECT run_id, run_day, stream, start_offset, end_offset, data, created_at FROM moved',
            partition
        ) USING day;
        EXECUTE format(
            'ALTER TABLE run_log_chunks ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            partition, day, day + 1
        );
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
SELECT make_log_days(7);

-- The oldest day of output that is out of its time goes, whole. Null: there is none.
CREATE FUNCTION drop_log_day(keep interval) RETURNS date
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = heartbeat AS $$
DECLARE
    partition text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('heartbeat/run_log_chunks', 0));
    SELECT c.relname INTO partition
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'run_log_chunks'::regclass AND c.relname ~ '^run_log_chunks_[0-9]{8}$'
        AND right(c.relname, 8) < to_char((clock() - keep) AT TIME ZONE 'UTC', 'YYYYMMDD')
    ORDER BY c.relname
    LIMIT 1;
    IF partition IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('DROP TABLE %I', partition);
    RETURN to_date(right(partition, 8), 'YYYYMMDD');
END
$$;

-- Events are append-only for the service; this is the one way by which they are forgotten, together
-- with their runs: a stretch of old runs in order of their ids, which tell when they were made. All
-- attempts of a wakeup go at once, and only when it was settled so long ago.
CREATE FUNCTION prune_runs(
    keep interval, beyond uuid, most integer,
    OUT removed integer, OUT looked_at integer, OUT last_run uuid
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = heartbeat AS $$
DECLARE
    until timestamptz := clock() - keep;
    stretch uuid[];
    wakeups uuid[];
    gone uuid[];
BEGIN
    SELECT array_agg(s.run_id ORDER BY s.run_id), array_agg(DISTINCT s.wakeup_id)
    INTO stretch, wakeups
    FROM (
        SELECT r.run_id, r.wakeup_id FROM runs r
        WHERE r.run_id > beyond AND r.run_id < (
            lpad(to_hex((extract(epoch FROM until) * 1000)::bigint), 12, '0') || repeat('0', 20)
        )::uuid
        ORDER BY r.run_id
        LIMIT most
    ) s;
    looked_at := coalesce(cardinality(stretch), 0);
    last_run := stretch[looked_at];
    SELECT coalesce(array_agg(r.run_id), '{}') INTO gone
    FROM runs r JOIN wakeup_requests w ON w.wakeup_id = r.wakeup_id
    WHERE r.wakeup_id = ANY(wakeups) AND w.finished_at < until
        AND NOT EXISTS (
            SELECT FROM runs o
            WHERE o.wakeup_id = r.wakeup_id AND o.follow_up_done_at IS NULL
        );
    DELETE FROM run_events WHERE run_id = ANY(gone);
    DELETE FROM runs WHERE run_id = ANY(gone);
    removed := cardinality(gone);
END
$$;

-- What retention looks for, oldest first. A wakeup is in one of the first two.
CREATE INDEX wakeup_requests_settled ON wakeup_requests (finished_at)
    WHERE occurrence_key IS NULL AND finished_at IS NOT NULL;
CREATE INDEX wakeup_requests_settled_key ON wakeup_requests (finished_at)
    WHERE occurrence_key IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX occurrences_wakeup ON occurrences (wakeup_id);
CREATE INDEX occurrences_unused ON occurrences (cancelled_at) WHERE wakeup_id IS NULL;
