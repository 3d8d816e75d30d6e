-- PERFORM, as a trigger function calls it.
DO $$
DECLARE
    payloads CONSTANT jsonb[] := (SELECT array_agg(payload) FROM bench_payload);
    aggregates CONSTANT uuid[] := (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {events}));
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..{events} LOOP
        PERFORM outbox_enqueue(NULL, 'order', aggregates[i], 'order.created', NULL, payloads[1 + i % 64]);
    END LOOP;
    PERFORM set_config('bench.seconds', extract(epoch FROM clock_timestamp() - began)::text, false);
END $$
