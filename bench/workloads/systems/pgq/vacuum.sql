SELECT pgq.maint_retry_events();
SELECT pgq.maint_rotate_tables_step1('bench');
SELECT pgq.maint_rotate_tables_step2();
VACUUM pgq.subscription;
VACUUM pgq.consumer;
VACUUM pgq.queue;
VACUUM pgq.tick;
VACUUM pgq.retry_queue;
