WITH candidates AS (
    SELECT id
    FROM outbox_event
    WHERE (status = 'pending' AND available_at <= now())
       OR (status = 'processing' AND locked_at < now() - interval '5 minutes')
    ORDER BY available_at, created_at
    FOR UPDATE SKIP LOCKED
    LIMIT $2::integer
)
UPDATE outbox_event event
SET status = 'processing', locked_at = now(), locked_by = $1::text,
    attempt_count = event.attempt_count + 1, updated_at = now()
FROM candidates
WHERE event.id = candidates.id
RETURNING event.id, event.attempt_count, event.payload, event.tenant_id, event.aggregate_type,
          event.aggregate_id, event.event_type, event.deduplication_key
