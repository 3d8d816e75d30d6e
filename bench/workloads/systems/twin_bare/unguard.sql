DROP TRIGGER zz_outbox_event_guard ON outbox_event;
