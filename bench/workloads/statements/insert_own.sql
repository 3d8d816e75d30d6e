INSERT INTO outbox_event (id, aggregate_type, aggregate_id, event_type, payload, payload_hash)
VALUES ($3::uuid, 'order', $2::uuid, 'order.created', $1::text::jsonb, $4::text)
RETURNING id
