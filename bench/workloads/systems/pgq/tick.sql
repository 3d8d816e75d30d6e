SELECT pgq.force_tick('bench');
SELECT pgq.ticker('bench');
