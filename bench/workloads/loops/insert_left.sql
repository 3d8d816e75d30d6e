-- An INSERT that leaves id and payload_hash to us.
DO $$
DECLARE
    payloads CONSTANT jsonb[] := (SELECT array_agg(payload) FROM bench_payload);
    aggregates CONSTANT uuid[] := (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {events}));
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..{events} LOOP
        INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
        VALUES ('order', aggregates[i], 'order.created', payloads[1 + i % 64]);
    END LOOP;
    PERFORM set_config('bench.seconds', extract(epoch FROM clock_timestamp() - began)::text, false);
END $$
