SELECT twin.enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, $1::text::jsonb)
