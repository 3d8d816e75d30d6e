INSERT INTO outbox_event (tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key,
                          payload, payload_hash)
VALUES (NULL, 'order', gen_random_uuid(), 'order.created', NULL, $1::text::jsonb,
        encode(sha256(convert_to($1::text, 'UTF8')), 'hex'))
ON CONFLICT DO NOTHING
RETURNING id
