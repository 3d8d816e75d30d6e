SELECT pgq.next_batch('bench', 'bench')
