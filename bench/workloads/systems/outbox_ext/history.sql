-- $1 events with payload $2 that were completed.
WITH event AS MATERIALIZED (
    SELECT $2::text::jsonb AS payload, outbox_payload_hash($2::text::jsonb) AS hash
)
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash,
                          status, attempt_count, completed_at)
SELECT 'order', gen_random_uuid(), 'order.created', event.payload, event.hash,
       'completed', 1, clock_timestamp()
FROM event, generate_series(1, $1::bigint)
