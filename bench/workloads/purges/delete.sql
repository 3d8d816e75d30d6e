-- As it is usually written. The extension's index over completed events serves it too.
WITH deleted AS (
    DELETE FROM outbox_event
    WHERE id IN (SELECT id FROM outbox_event WHERE status = 'completed' AND completed_at < now()
                 ORDER BY completed_at LIMIT $1::integer)
    RETURNING 1
)
SELECT count(*) FROM deleted
