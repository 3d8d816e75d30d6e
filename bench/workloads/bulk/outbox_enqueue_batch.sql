-- $1 is a JSON array.
SELECT count(*) FROM outbox_enqueue_batch($1::text::jsonb)
