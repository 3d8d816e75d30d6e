-- $1 events with payload $2, due tomorrow.
WITH event AS MATERIALIZED (
    SELECT $2::text::jsonb AS payload, encode(sha256(convert_to($2::text, 'UTF8')), 'hex') AS hash
)
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash,
                          available_at, created_at)
SELECT 'order', gen_random_uuid(), 'order.created', event.payload, event.hash,
       clock_timestamp() + interval '1 day', clock_timestamp()
FROM event, generate_series(1, $1::bigint)
