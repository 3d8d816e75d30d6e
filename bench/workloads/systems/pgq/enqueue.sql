SELECT pgq.insert_event('bench', 'order.created', $1::text)
