-- $1 events $2.
SELECT count(pgq.insert_event('bench', 'order.created', $2::text)) FROM generate_series(1, $1::bigint)
