CREATE EXTENSION pgq;
SELECT pgq.create_queue('bench');
SELECT pgq.register_consumer('bench', 'bench');
