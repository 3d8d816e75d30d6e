-- An INSERT that brings its id and its payload_hash; both are made before the loop.
DO $$
DECLARE
    payloads CONSTANT jsonb[] := (SELECT array_agg(payload) FROM bench_payload);
    hashes CONSTANT text[] := (SELECT array_agg(outbox_payload_hash(payload)) FROM bench_payload);
    aggregates CONSTANT uuid[] := (SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {events}));
    ids CONSTANT uuid[] := (SELECT array_agg(outbox_event_id()) FROM generate_series(1, {events}));
    began timestamptz := clock_timestamp();
BEGIN
    FOR i IN 1..{events} LOOP
        INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload, payload_hash)
        VALUES (ids[i], 'order', aggregates[i], 'order.created', payloads[1 + i % 64], hashes[1 + i % 64]);
    END LOOP;
    PERFORM set_config('bench.seconds', extract(epoch FROM clock_timestamp() - began)::text, false);
END $$
