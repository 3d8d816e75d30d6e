SELECT count(*) FROM pgmq.archive('bench', $1::bigint[]) WHERE $2::text IS NOT NULL
