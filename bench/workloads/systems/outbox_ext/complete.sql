SELECT count(*) FROM outbox_complete_batch($1, $2, $3)
