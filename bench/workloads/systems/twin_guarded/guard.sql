-- The rules of the extension's guard: a row becomes a sound event, or it is refused.
CREATE FUNCTION twin.guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    inserted CONSTANT boolean := TG_OP = 'INSERT';
BEGIN
    IF NEW.tenant_id = '00000000-0000-0000-0000-000000000000'
        OR NOT (isfinite(NEW.available_at) AND isfinite(NEW.created_at) AND isfinite(NEW.updated_at)
                AND coalesce(isfinite(NEW.locked_at), true) AND coalesce(isfinite(NEW.completed_at), true)
                AND coalesce(isfinite(NEW.dead_at), true))
        OR jsonb_typeof(NEW.headers) <> 'object' THEN
        RAISE 'a value that no event can have' USING ERRCODE = '22023';
    END IF;

    -- A payload is compared only when an UPDATE may have changed it: else it would be read from its TOAST.
    IF inserted THEN
        IF NEW.payload_hash IS NULL THEN
            NEW.payload_hash := outbox_payload_hash(NEW.payload);
        ELSIF NEW.payload_hash !~ '^[0-9a-f]{64}$' THEN
            RAISE 'payload_hash is no hash' USING ERRCODE = '22023';
        END IF;
    ELSIF NEW.payload_hash <> OLD.payload_hash THEN
        NEW.payload_hash := outbox_payload_hash(NEW.payload);
    END IF;

    IF NEW.attempt_count NOT BETWEEN 0 AND 1000000000 OR NEW.forgiven_attempts NOT BETWEEN 0 AND NEW.attempt_count
        OR NOT inserted AND NEW.attempt_count < OLD.attempt_count THEN
        RAISE 'attempts out of range' USING ERRCODE = '22023';
    END IF;

    IF NEW.status = 'processing' THEN
        IF NEW.locked_by IS NULL OR NEW.locked_at IS NULL OR octet_length(NEW.locked_by) NOT BETWEEN 1 AND 255 THEN
            RAISE 'an event in processing has a lease' USING ERRCODE = '22023';
        END IF;
        NEW.locked_at := least(NEW.locked_at, moment);
        NEW.available_at := least(NEW.available_at, moment);
        IF inserted THEN
            IF NEW.attempt_count = 0 THEN
                NEW.attempt_count := 1;
            END IF;
        ELSIF NEW.attempt_count = OLD.attempt_count
            AND NOT (OLD.status = 'processing' AND OLD.locked_by = NEW.locked_by) THEN
            NEW.attempt_count := NEW.attempt_count + 1;
        END IF;
    ELSE
        IF inserted AND (NEW.locked_at IS NOT NULL OR NEW.locked_by IS NOT NULL)
            OR NOT inserted AND (NEW.locked_at IS DISTINCT FROM OLD.locked_at AND NEW.locked_at IS NOT NULL
                                 OR NEW.locked_by IS DISTINCT FROM OLD.locked_by AND NEW.locked_by IS NOT NULL) THEN
            RAISE 'a lease that the status must not have' USING ERRCODE = '22023';
        END IF;
        NEW.locked_at := NULL;
        NEW.locked_by := NULL;
    END IF;

    IF NEW.status = 'completed' THEN
        NEW.completed_at := coalesce(NEW.completed_at, moment);
    ELSIF NEW.completed_at IS NOT NULL AND (inserted OR NEW.completed_at IS DISTINCT FROM OLD.completed_at) THEN
        RAISE 'completed_at that the status must not have' USING ERRCODE = '22023';
    ELSE
        NEW.completed_at := NULL;
    END IF;

    IF NEW.status = 'dead' THEN
        NEW.dead_at := coalesce(NEW.dead_at, moment);
    ELSIF NEW.dead_at IS NOT NULL AND (inserted OR NEW.dead_at IS DISTINCT FROM OLD.dead_at) THEN
        RAISE 'dead_at that the status must not have' USING ERRCODE = '22023';
    ELSE
        NEW.dead_at := NULL;
    END IF;

    IF NEW.status = 'pending' THEN
        NEW.claimed_in_order := NULL;
    END IF;
    IF NOT inserted AND NEW.status = 'pending' AND OLD.status IN ('completed', 'dead')
        AND NEW.forgiven_attempts = OLD.forgiven_attempts THEN
        NEW.forgiven_attempts := NEW.attempt_count;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER zz_twin_guard BEFORE INSERT OR UPDATE ON outbox_event
    FOR EACH ROW EXECUTE FUNCTION twin.guard();
