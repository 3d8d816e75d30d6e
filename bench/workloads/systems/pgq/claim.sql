SELECT ev_id, ev_time, ev_type, ev_data, ev_extra1 FROM pgq.get_batch_events($1)
