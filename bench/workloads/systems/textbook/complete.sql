WITH completed AS (
    UPDATE outbox_event
    SET status = 'completed', completed_at = now(), locked_at = NULL, locked_by = NULL,
        last_error_code = NULL, updated_at = now()
    WHERE id = ANY ($1::uuid[]) AND status = 'processing' AND locked_by = $2::text
    RETURNING 1
)
SELECT count(*) FROM completed
