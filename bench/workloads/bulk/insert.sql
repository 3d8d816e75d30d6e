-- An INSERT that leaves id and payload_hash to us.
INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) VALUES {rows}
