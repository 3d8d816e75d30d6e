SELECT count(*) FROM twin.complete_batch($1, $2, $3)
