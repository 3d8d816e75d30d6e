CREATE TABLE outbox_event (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id uuid,
    aggregate_type varchar(255) NOT NULL,
    aggregate_id uuid NOT NULL,
    event_type varchar(255) NOT NULL,
    deduplication_key varchar(1024),
    payload jsonb NOT NULL,
    payload_hash varchar(64) NOT NULL,
    status varchar(16) NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'processing', 'completed', 'dead')),
    attempt_count integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    locked_at timestamptz,
    locked_by varchar(255),
    last_error_code varchar(1024),
    completed_at timestamptz,
    dead_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX outbox_event_deduplication_idx ON outbox_event (
    COALESCE(tenant_id, '00000000-0000-0000-0000-000000000000'::uuid), event_type, deduplication_key)
    WHERE deduplication_key IS NOT NULL;

CREATE INDEX outbox_event_pending_idx ON outbox_event (available_at, created_at) WHERE status = 'pending';

CREATE INDEX outbox_event_processing_idx ON outbox_event (locked_at) WHERE status = 'processing';
