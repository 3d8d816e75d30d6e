SELECT id, attempt_count, payload, headers, tenant_id, aggregate_type, aggregate_id, event_type,
       deduplication_key, created_at, locked_at
FROM outbox_claim_batch($1, $2, only_event_types => '{order.shipped}')
