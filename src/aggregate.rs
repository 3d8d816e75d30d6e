//! What ordered claims ask about an event's aggregate, as expressions of SQL. The two indexes by aggregate answer.

/// Whether an unfinished event of the aggregate comes before `event`; NULL for no. The ORDER BY is that of the
/// index by aggregate, so that no other can serve, and LIMIT rather than EXISTS keeps it: the entry just before
/// answers for an event that has to wait, however many wait with it.
macro_rules! earlier {
    () => {
        "(SELECT true FROM ONLY {schema}.outbox_event AS earlier
          WHERE earlier.completed_at IS NULL AND earlier.dead_at IS NULL
            AND earlier.aggregate_id OPERATOR(pg_catalog.=) event.aggregate_id
            AND earlier.aggregate_type::pg_catalog.text
                OPERATOR(pg_catalog.=) event.aggregate_type::pg_catalog.text
            AND (earlier.created_at, earlier.id) OPERATOR(pg_catalog.<) (event.created_at, event.id)
          ORDER BY earlier.created_at DESC, earlier.id DESC LIMIT 1)"
    };
}

/// Whether an event of the aggregate of `event` is in flight, claimed in order; NULL for no. Ranges of one value
/// rather than equalities, which would make the ORDER BY void; one way and the other, since of all indexes only
/// that of the events in flight lies so. Any other would walk the unfinished events, when the planner last saw few.
macro_rules! in_flight {
    () => {
        "(SELECT true FROM ONLY {schema}.outbox_event AS other
          WHERE other.claimed_in_order AND other.completed_at IS NULL AND other.dead_at IS NULL
            AND other.aggregate_id OPERATOR(pg_catalog.>=) event.aggregate_id
            AND other.aggregate_id OPERATOR(pg_catalog.<=) event.aggregate_id
            AND other.aggregate_type::pg_catalog.text
                OPERATOR(pg_catalog.>=) event.aggregate_type::pg_catalog.text
            AND other.aggregate_type::pg_catalog.text
                OPERATOR(pg_catalog.<=) event.aggregate_type::pg_catalog.text
          ORDER BY other.aggregate_id DESC, other.aggregate_type LIMIT 1)"
    };
}

pub(crate) use {earlier, in_flight};
