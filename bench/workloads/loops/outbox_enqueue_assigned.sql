-- The id is assigned to a variable, which PL/pgSQL does without a query of its own.
DO $$
DECLARE
    payloads CONSTANT jsonb[] := (SELECT array_agg(payload) FROM bench_payload);
    aggregates CONSTANT uuid[] := (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {events}));
    event_id uuid;
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..{events} LOOP
        event_id := outbox_enqueue(NULL, 'order', aggregates[i], 'order.created', NULL, payloads[1 + i % 64]);
    END LOOP;
    PERFORM set_config('bench.seconds', extract(epoch FROM clock_timestamp() - began)::text, false);
END $$
