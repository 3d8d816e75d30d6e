-- $1: pgmq knows no workers.
SELECT msg_id, read_ct, message, headers, enqueued_at, vt
FROM pgmq.read('bench', 300, $2::integer)
WHERE $1::text IS NOT NULL
