-- $1 events with payload $2, due tomorrow.
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash, available_at)
SELECT 'order', gen_random_uuid(), 'order.created', $2::text::jsonb, outbox_payload_hash($2::text::jsonb),
       clock_timestamp() + interval '1 day'
FROM generate_series(1, $1::bigint)
