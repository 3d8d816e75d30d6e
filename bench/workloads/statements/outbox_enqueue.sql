SELECT outbox_enqueue(NULL, 'order', $2::uuid, 'order.created', NULL, $1::text::jsonb)
