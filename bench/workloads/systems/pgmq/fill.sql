-- $1 messages $2.
INSERT INTO pgmq.q_bench (vt, message)
SELECT clock_timestamp(), $2::text::jsonb FROM generate_series(1, $1::bigint)
