-- The extension's functions as static SQL, with its statements and SQLSTATEs. Parameters are read by number, so that
-- a name always means a column.
CREATE SCHEMA twin;

CREATE FUNCTION twin.enqueue(
    tenant_id uuid, aggregate_type text, aggregate_id uuid, event_type text, deduplication_key text,
    payload jsonb, available_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    hash text;
    new_id uuid;
    holder record;
BEGIN
    IF $2 IS NULL OR $3 IS NULL OR $4 IS NULL OR $6 IS NULL THEN
        RAISE 'a required argument is null' USING ERRCODE = '22004';
    END IF;
    IF $1 = '00000000-0000-0000-0000-000000000000' OR NOT isfinite($7) OR jsonb_typeof($8) <> 'object' THEN
        RAISE 'an argument is out of range' USING ERRCODE = '22023';
    END IF;
    hash := outbox_payload_hash($6);
    new_id := outbox_event_id();
    IF $5 IS NULL THEN
        INSERT INTO outbox_event (id, tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key,
                                  payload, headers, payload_hash, available_at, created_at, updated_at)
        VALUES (new_id, $1, $2, $3, $4, $5, $6, $8, hash, coalesce($7, moment), moment, moment);
        RETURN new_id;
    END IF;
    FOR round IN 1..10 LOOP
        INSERT INTO outbox_event (id, tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key,
                                  payload, headers, payload_hash, available_at, created_at, updated_at)
        VALUES (new_id, $1, $2, $3, $4, $5, $6, $8, hash, coalesce($7, moment), moment, moment)
        ON CONFLICT (tenant_id, event_type, deduplication_key) WHERE deduplication_key IS NOT NULL DO NOTHING;
        IF FOUND THEN
            RETURN new_id;
        END IF;
        IF $1 IS NULL THEN
            SELECT e.id, e.payload_hash, e.aggregate_type, e.aggregate_id INTO holder FROM outbox_event e
            WHERE e.event_type = $4 AND e.deduplication_key = $5 AND e.tenant_id IS NULL;
        ELSE
            SELECT e.id, e.payload_hash, e.aggregate_type, e.aggregate_id INTO holder FROM outbox_event e
            WHERE e.event_type = $4 AND e.deduplication_key = $5 AND e.tenant_id = $1;
        END IF;
        CONTINUE WHEN NOT FOUND;
        IF holder.payload_hash = hash AND holder.aggregate_type = $2 AND holder.aggregate_id = $3 THEN
            RETURN holder.id;
        END IF;
        RAISE 'the key is held by event %', holder.id USING ERRCODE = '23505';
    END LOOP;
    RAISE 'the key was lost to a concurrent transaction' USING ERRCODE = '40001';
END $$;

CREATE FUNCTION twin.claim_batch(
    worker_id text, batch_size integer DEFAULT 100, lock_timeout interval DEFAULT '5 minutes',
    max_attempts integer DEFAULT 25, only_event_types text[] DEFAULT NULL, only_tenant uuid DEFAULT NULL
) RETURNS TABLE (
    id uuid, tenant_id uuid, aggregate_type text, aggregate_id uuid, event_type text, deduplication_key text,
    payload jsonb, attempt_count integer, headers jsonb, created_at timestamptz, locked_at timestamptz
) LANGUAGE plpgsql ROWS 100 AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    expired_before CONSTANT timestamptz := moment - $3;
    wanted bigint := $2;
    found tid[];
    spent tid[];
    reclaims boolean;
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR $3 IS NULL THEN
        RAISE 'a required argument is null' USING ERRCODE = '22004';
    END IF;
    IF octet_length($1) NOT BETWEEN 1 AND 255 OR $2 < 1 OR $3 <= interval '0' OR $4 < 0 THEN
        RAISE 'an argument is out of range' USING ERRCODE = '22023';
    END IF;
    FOR round IN 1..16 LOOP
        SELECT array_agg(f.position) FILTER (WHERE f.status = 'pending' OR f.counted < $4),
               array_agg(f.position) FILTER (WHERE f.status = 'processing' AND f.counted >= $4),
               bool_or(f.status = 'processing')
        INTO found, spent, reclaims
        FROM (SELECT e.ctid AS position, e.status::text AS status,
                     e.attempt_count - e.forgiven_attempts AS counted
              FROM outbox_event e
              WHERE e.completed_at IS NULL AND e.dead_at IS NULL AND e.available_at <= moment
                AND ($5 IS NULL OR e.event_type::text = ANY ($5)) AND ($6 IS NULL OR e.tenant_id = $6)
                AND (e.status::text = 'pending' OR e.status::text = 'processing' AND e.locked_at < expired_before)
              ORDER BY e.available_at, e.created_at, e.id
              LIMIT wanted
              FOR NO KEY UPDATE SKIP LOCKED) f;
        IF spent IS NOT NULL THEN
            UPDATE outbox_event e
            SET status = 'dead', dead_at = moment, locked_at = NULL, locked_by = NULL, updated_at = moment,
                last_error_code = 'lease_expired'
            WHERE e.ctid = ANY (spent);
        END IF;
        -- What is reclaimed moves to the back of the queue, but comes in the order in which it was found.
        IF reclaims THEN
            RETURN QUERY
            WITH before AS MATERIALIZED (
                SELECT e.id, e.available_at FROM outbox_event e WHERE e.ctid = ANY (found)
            ), taken AS (
                UPDATE outbox_event e
                SET status = 'processing', locked_at = moment, locked_by = $1, updated_at = moment,
                    attempt_count = least(e.attempt_count, 2147483646) + 1, claimed_in_order = NULL,
                    available_at = CASE e.status::text WHEN 'processing' THEN moment ELSE e.available_at END
                WHERE e.ctid = ANY (found)
                RETURNING e.id, e.tenant_id, e.aggregate_type::text, e.aggregate_id, e.event_type::text,
                          e.deduplication_key::text, e.payload, e.attempt_count, e.headers, e.created_at,
                          e.locked_at
            )
            SELECT t.* FROM taken t JOIN before b USING (id) ORDER BY b.available_at, t.created_at, t.id;
        ELSE
            RETURN QUERY
            WITH taken AS (
                UPDATE outbox_event e
                SET status = 'processing', locked_at = moment, locked_by = $1, updated_at = moment,
                    attempt_count = least(e.attempt_count, 2147483646) + 1, claimed_in_order = NULL,
                    available_at = CASE e.status::text WHEN 'processing' THEN moment ELSE e.available_at END
                WHERE e.ctid = ANY (found)
                RETURNING e.available_at AS found_at, e.id, e.tenant_id, e.aggregate_type::text,
                          e.aggregate_id, e.event_type::text, e.deduplication_key::text, e.payload,
                          e.attempt_count, e.headers, e.created_at, e.locked_at
            )
            SELECT t.id, t.tenant_id, t.aggregate_type, t.aggregate_id, t.event_type, t.deduplication_key,
                   t.payload, t.attempt_count, t.headers, t.created_at, t.locked_at
            FROM taken t ORDER BY t.found_at, t.created_at, t.id;
        END IF;
        EXIT WHEN spent IS NULL;
        wanted := wanted - coalesce(cardinality(found), 0);
        EXIT WHEN wanted = 0;
    END LOOP;
END $$;

CREATE FUNCTION twin.complete(event_id uuid, worker_id text, attempt integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    found_status text;
BEGIN
    IF $1 IS NULL OR $2 IS NULL THEN
        RAISE 'a required argument is null' USING ERRCODE = '22004';
    END IF;
    IF octet_length($2) NOT BETWEEN 1 AND 255 THEN
        RAISE 'an argument is out of range' USING ERRCODE = '22023';
    END IF;
    UPDATE outbox_event e
    SET status = 'completed', completed_at = moment, locked_at = NULL, locked_by = NULL,
        last_error_code = NULL, updated_at = moment
    WHERE e.id = $1 AND e.status::text = 'processing' AND e.locked_by = $2
      AND ($3 IS NULL OR e.attempt_count = $3);
    IF NOT FOUND THEN
        SELECT e.status INTO found_status FROM outbox_event e WHERE e.id = $1;
        IF NOT FOUND THEN
            RAISE 'there is no event %', $1 USING ERRCODE = 'P0002';
        END IF;
        RAISE 'the lease of event % was lost', $1 USING ERRCODE = '55000', DETAIL = found_status;
    END IF;
END $$;

CREATE FUNCTION twin.complete_batch(event_ids uuid[], worker_id text, attempts integer[] DEFAULT NULL)
RETURNS SETOF uuid LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF $1 IS NULL OR array_position($1, NULL) IS NOT NULL OR $2 IS NULL THEN
        RAISE 'a required argument is null' USING ERRCODE = '22004';
    END IF;
    IF octet_length($2) NOT BETWEEN 1 AND 255 OR cardinality($3) <> cardinality($1) THEN
        RAISE 'an argument is out of range' USING ERRCODE = '22023';
    END IF;
    RETURN QUERY
    UPDATE outbox_event e
    SET status = 'completed', completed_at = moment, locked_at = NULL, locked_by = NULL,
        last_error_code = NULL, updated_at = moment
    FROM ROWS FROM (unnest($1), unnest($3)) AS held (id, attempt)
    WHERE e.id = held.id AND e.status::text = 'processing' AND e.locked_by = $2
      AND (held.attempt IS NULL OR e.attempt_count = held.attempt)
    RETURNING e.id;
END $$;
