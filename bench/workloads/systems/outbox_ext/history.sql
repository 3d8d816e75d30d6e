-- $1 events with payload $2 that were completed.
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash,
                          status, attempt_count, completed_at)
SELECT 'order', gen_random_uuid(), 'order.created', $2::text::jsonb, outbox_payload_hash($2::text::jsonb),
       'completed', 1, clock_timestamp()
FROM generate_series(1, $1::bigint)
