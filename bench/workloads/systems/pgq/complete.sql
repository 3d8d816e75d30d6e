SELECT pgq.finish_batch($1)
