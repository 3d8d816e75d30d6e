VACUUM (ANALYZE) outbox_event
