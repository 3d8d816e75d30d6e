-- $1 events with payload $2, waiting. Fills run with session_replication_role = replica: the rows are sound,
-- and the guard would only make the wait longer.
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash)
SELECT 'order', gen_random_uuid(), 'order.created', $2::text::jsonb, outbox_payload_hash($2::text::jsonb)
FROM generate_series(1, $1::bigint)
