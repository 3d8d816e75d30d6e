COMMENT ON DOMAIN outbox_status IS 'State of an event: pending, processing, completed or dead.';
COMMENT ON DOMAIN outbox_name IS 'Aggregate or event type: text of 1 to 255 bytes.';
COMMENT ON DOMAIN outbox_deduplication_key IS 'Deduplication key: text of 1 to 1024 bytes.';

COMMENT ON TABLE outbox_event IS 'Transactional outbox: one row an event, committed with the business rows it tells of. Read it freely; write it through the outbox_* functions, or by hand within the rules of the documentation.';
COMMENT ON COLUMN outbox_event.id IS 'UUIDv7, strictly increasing within a session.';
COMMENT ON COLUMN outbox_event.tenant_id IS 'Whose event it is; NULL is one tenant too, the all-zero uuid is refused.';
COMMENT ON COLUMN outbox_event.aggregate_type IS 'Kind of the business object it is about; 1 to 255 bytes.';
COMMENT ON COLUMN outbox_event.aggregate_id IS 'Which business object it is about.';
COMMENT ON COLUMN outbox_event.event_type IS 'What happened; 1 to 255 bytes.';
COMMENT ON COLUMN outbox_event.deduplication_key IS 'Unique within tenant and event type for as long as the row exists; 1 to 1024 bytes, NULL for no deduplication.';
COMMENT ON COLUMN outbox_event.payload IS 'What is delivered.';
COMMENT ON COLUMN outbox_event.headers IS 'A JSON object beside the payload, such as trace context; no part of the hash.';
COMMENT ON COLUMN outbox_event.payload_hash IS 'outbox_payload_hash(payload): filled in when an INSERT leaves it out, recomputed when the payload changes.';
COMMENT ON COLUMN outbox_event.status IS 'pending: waits to be claimed; processing: leased to a worker; completed: delivered; dead: given up.';
COMMENT ON COLUMN outbox_event.attempt_count IS 'How often it was claimed; never decreases. With locked_by it fences late workers off.';
COMMENT ON COLUMN outbox_event.forgiven_attempts IS 'Attempts that do not count toward max_attempts.';
COMMENT ON COLUMN outbox_event.available_at IS 'When it may be claimed: the retry''s time after a failure, the time of the reclaim after a lease expired.';
COMMENT ON COLUMN outbox_event.locked_at IS 'Start of the lease, by the clock of the claim.';
COMMENT ON COLUMN outbox_event.locked_by IS 'Worker that holds the lease.';
COMMENT ON COLUMN outbox_event.last_error_code IS 'Why the last attempt failed, at most 1024 bytes; lease_expired when no worker settled it in time.';
COMMENT ON COLUMN outbox_event.completed_at IS 'When it was completed.';
COMMENT ON COLUMN outbox_event.dead_at IS 'When it was given up.';
COMMENT ON COLUMN outbox_event.created_at IS 'When it was enqueued, by the clock and not by the transaction''s start.';
COMMENT ON COLUMN outbox_event.updated_at IS 'When one of the functions last changed it.';

COMMENT ON INDEX outbox_event_pkey IS 'Events by id.';
COMMENT ON INDEX outbox_event_claim_idx IS 'Unfinished events in the order in which they are claimed.';
COMMENT ON INDEX outbox_event_deduplication_idx IS 'One event for each key of a tenant and event type.';
COMMENT ON TRIGGER zz_outbox_event_guard ON outbox_event IS 'Makes every row a sound event, or refuses it.';

COMMENT ON FUNCTION outbox_event_id IS 'New event id: a UUIDv7, strictly increasing within a session.';
COMMENT ON FUNCTION outbox_payload_hash IS 'SHA-256 (64 lower-case hex digits) over the canonical text of a payload: two payloads have the same hash exactly when they are equal as jsonb. Errors: 22004 payload is NULL; 22021 a string is no text in the database''s encoding.';
COMMENT ON FUNCTION outbox_aggregate_id IS 'Id of an aggregate whose key is no uuid: a name-based UUID (version 5) of aggregate_type (1 to 255 bytes) and key (a text that is not empty), the same in every release. Errors: 22004 an argument is NULL; 22023 an argument out of range; 22021 a text that is none in the database''s encoding.';
COMMENT ON FUNCTION outbox_event_guard IS 'Trigger of outbox_event: fills in payload_hash, makes the columns fit the status, notifies outbox.notify_channel when the event becomes claimable. Errors: 22023 a value that no event can have; 54000 the payload is larger than outbox.max_payload_bytes allows.';
COMMENT ON FUNCTION outbox_enqueue IS 'Adds one pending event in the caller''s transaction and returns its id; for a deduplication_key that was used before with an equal payload on the same aggregate, the earlier event''s id. Required: aggregate_type, aggregate_id, event_type, payload. available_at NULL means now. Errors: 22004 a required argument is NULL; 22023 an argument out of range; 54000 the payload is larger than outbox.max_payload_bytes allows; 23505 the key was used with another payload or aggregate; 42501 the key is held by an event you may not see; 40001 the key was lost to a concurrent transaction.';
COMMENT ON FUNCTION outbox_claim_batch IS 'Leases up to batch_size events to a worker: pending and due, or with a lease older than lock_timeout; in the order (available_at, created_at, id), never one event to two workers. Call it in FROM. An event whose lease expired after max_attempts counted attempts (NULL: outbox.max_attempts) goes to dead instead. Errors: 22004 a required argument is NULL; 22023 an argument out of range; 0A000 only_event_types, only_tenant and ordered are not supported yet.';
COMMENT ON FUNCTION outbox_complete IS 'Marks a leased event as completed. With attempt (the attempt_count that the claim returned) it must be that very attempt. Errors: 22004 a required argument is NULL; P0002 no such event; 55000 the lease is not held, and DETAIL says what is found.';
COMMENT ON FUNCTION outbox_fail IS 'Ends a leased event''s attempt and returns the new status: pending again at next_attempt (NULL: exponential backoff with full jitter), or dead once the counted attempts reach max_attempts (NULL: outbox.max_attempts; 0: at once). error_code is kept up to 1024 bytes. Errors: 22004 a required argument is NULL; 22023 an argument out of range; P0002 no such event; 55000 the lease is not held, and DETAIL says what is found.';
