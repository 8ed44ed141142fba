-- name: hint_notify
-- Tell listeners to look now. The payload stays empty: whoever hears it reads the tables.
-- $1 channels
SELECT pg_notify(channel, '') FROM unnest($1::text[]) AS channel;
