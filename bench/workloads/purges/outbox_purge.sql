SELECT outbox_purge('0', $1::integer)
