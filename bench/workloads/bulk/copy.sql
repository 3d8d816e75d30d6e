-- COPY in its text format, which leaves id and payload_hash to us.
COPY outbox_event (aggregate_type, aggregate_id, event_type, payload) FROM STDIN
