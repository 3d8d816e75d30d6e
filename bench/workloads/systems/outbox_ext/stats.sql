SELECT * FROM outbox_stats
