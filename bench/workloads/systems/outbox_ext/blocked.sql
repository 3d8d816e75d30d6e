-- $1 events with payload $2 of $3 aggregates in turn. The first of each was leased a moment ago, in order, to a worker
-- that is still at it; the others have to wait for it.
WITH event AS MATERIALIZED (
    SELECT $2::text::jsonb AS payload, outbox_payload_hash($2::text::jsonb) AS hash
)
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash,
                          status, attempt_count, locked_at, locked_by, claimed_in_order)
SELECT 'order', md5('blocked ' || n % $3::bigint)::uuid, 'order.created', event.payload, event.hash,
       CASE WHEN leased THEN 'processing' ELSE 'pending' END, leased::integer,
       CASE WHEN leased THEN clock_timestamp() END, CASE WHEN leased THEN 'busy' END, nullif(leased, false)
FROM event, generate_series(1, $1::bigint) AS n, LATERAL (SELECT n <= $3::bigint AS leased) AS head
