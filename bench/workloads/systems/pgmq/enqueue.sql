SELECT pgmq.send('bench', $1::text::jsonb)
