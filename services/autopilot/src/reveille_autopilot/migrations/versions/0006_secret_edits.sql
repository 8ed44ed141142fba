-- Edits of signing secrets that the gateway was asked for, and when a version came to tell of them.
-- Without that an edit may or may not have been made: the gateway knows, and whoever asks it next
-- writes the version. Never a secret.

CREATE TABLE secret_edits (
    trigger_id uuid NOT NULL REFERENCES triggers (id),
    secret_id uuid NOT NULL,
    change text NOT NULL CHECK (change IN ('secret_added', 'secret_removed')),
    editor_user_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    recorded_at timestamptz,
    PRIMARY KEY (trigger_id, secret_id, change)
);
