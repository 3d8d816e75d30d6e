INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
VALUES ('order', $2::uuid, 'order.created', $1::text::jsonb)
RETURNING id
