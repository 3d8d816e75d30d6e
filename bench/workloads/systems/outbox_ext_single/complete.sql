SELECT count(outbox_complete(event.id, $2, event.attempt))
FROM unnest($1::uuid[], $3::integer[]) AS event (id, attempt)
