-- $1 events with payload $2, waiting, of another type than is claimed.
WITH event AS MATERIALIZED (
    SELECT $2::text::jsonb AS payload, outbox_payload_hash($2::text::jsonb) AS hash
)
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash)
SELECT 'order', gen_random_uuid(), 'order.created', event.payload, event.hash
FROM event, generate_series(1, $1::bigint)
