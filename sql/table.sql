-- The guard trigger knows columns by their number (src/row.rs): new ones go to the end.
CREATE TABLE outbox_event (
    id uuid NOT NULL DEFAULT outbox_event_id(),
    tenant_id uuid,
    aggregate_type outbox_name NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type outbox_name NOT NULL,
    deduplication_key outbox_deduplication_key,
    payload jsonb NOT NULL,
    headers jsonb,
    payload_hash text NOT NULL,
    status outbox_status NOT NULL DEFAULT 'pending',
    attempt_count integer NOT NULL DEFAULT 0,
    forgiven_attempts integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    locked_at timestamptz,
    locked_by text,
    last_error_code text,
    completed_at timestamptz,
    dead_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    claimed_in_order boolean,
    CONSTRAINT outbox_event_pkey PRIMARY KEY (id)
) WITH (
    -- A queue turns over its rows all day: vacuum by count rather than by share of a growing history.
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1,
    -- Room for the claim's new version beside the old one, so that claiming is a HOT update: at 45 every claim of a
    -- steady flow was one, at 50 it was 87% of those with payloads of 0.3 kB.
    fillfactor = 45
);

-- One scan order for every claim, over unfinished rows. It mentions no column that a claim changes (not
-- status either): that would end HOT.
CREATE INDEX outbox_event_claim_idx ON outbox_event (available_at, created_at, id)
    WHERE completed_at IS NULL AND dead_at IS NULL;

-- The unfinished events of an aggregate in the order of ordered claims. aggregate_id comes first, since uuids
-- compare faster than texts and tell nearly all aggregates apart.
CREATE INDEX outbox_event_aggregate_idx ON outbox_event (aggregate_id, aggregate_type, created_at, id)
    WHERE completed_at IS NULL AND dead_at IS NULL;

-- At most one event of an aggregate is in flight by an ordered claim, whatever the sessions can see of each
-- other. Claims without an order leave claimed_in_order null, and stay HOT. The tenant is in it since row-level
-- security may hide another tenant's event, which must not hold back a claim, nor be told of by one. DESC, so that
-- no other index lies so: src/aggregate.rs asks for that order.
CREATE UNIQUE INDEX outbox_event_in_flight_idx ON outbox_event (aggregate_id DESC, aggregate_type, tenant_id) NULLS NOT DISTINCT
    WHERE claimed_in_order AND completed_at IS NULL AND dead_at IS NULL;

-- Completed events, the first to end first: what retention goes along.
CREATE INDEX outbox_event_completed_idx ON outbox_event (completed_at, id)
    WHERE completed_at IS NOT NULL;

-- Dead events, the first to die first. Type and tenant come last, so that a replay of one type or tenant keeps
-- that order, and passes the others by without a look at their rows. Nothing that has not died has an entry.
CREATE INDEX outbox_event_dead_idx ON outbox_event (dead_at, id, event_type, tenant_id)
    WHERE dead_at IS NOT NULL;

-- Events of no tenant are one tenant.
CREATE UNIQUE INDEX outbox_event_deduplication_idx
    ON outbox_event (tenant_id, event_type, deduplication_key) NULLS NOT DISTINCT
    WHERE deduplication_key IS NOT NULL;

-- Triggers fire in the order of their names: this one after a user's own, to see the row that is stored.
CREATE TRIGGER zz_outbox_event_guard BEFORE INSERT OR UPDATE ON outbox_event
    FOR EACH ROW EXECUTE FUNCTION outbox_event_guard();

SELECT pg_catalog.pg_extension_config_dump('outbox_event', '');
