//! Succession: when an event that was claimed in order is settled for good, the next of its aggregate may be
//! claimed.
//!
//! Ordered claims pass over events that wait for an earlier one, and their cursors move on. So the call that
//! settles the earlier one moves its successor to `available_at = now`, ahead of every cursor; a sweep would
//! find it too, but later. The successor is the next unfinished event from the settled one on, which the index
//! by aggregate finds in one step, however many of the aggregate are finished or wait.

use crate::array;
use crate::error::OutboxError;
use crate::instant::Instant;
use crate::plans::{Rows, Session, Statement, Value, moment};
use pgrx::pg_sys::{
    TEXTARRAYOID, TEXTOID, TIDARRAYOID, TIDOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, UUIDARRAYOID, UUIDOID,
};

/// What a statement that settles `event` returns of it, for `advance`: its id, and its place in its aggregate
/// when it was claimed in order.
macro_rules! settled {
    () => {
        " RETURNING event.id::pg_catalog.uuid, event.claimed_in_order::pg_catalog.bool,
                    event.aggregate_type::pg_catalog.text, event.aggregate_id::pg_catalog.uuid,
                    event.created_at::pg_catalog.timestamptz"
    };
}
pub(crate) use settled;

/// Moves the successors of settled events, which `settled!` has returned, to this moment.
pub fn advance(session: &Session, settled: &Rows, now: Instant) -> Result<(), OutboxError> {
    let in_order: Vec<_> = settled.iter().filter(|row| row.get(2) == Some(true)).collect();
    if in_order.is_empty() {
        return Ok(());
    }
    let column =
        |element_type, column| Some(array::of(element_type, in_order.iter().map(|row| row.value(column))));
    let successors = session.run(
        &SUCCESSORS,
        [
            column(TEXTOID, 3),
            column(UUIDOID, 4),
            column(TIMESTAMPTZOID, 5),
            column(UUIDOID, 1),
            Some(moment(now)),
        ],
    )?;
    if successors.count() > 0 {
        let positions: Vec<Value> = successors.iter().map(|row| row.value(1)).collect();
        session.run(&MOVE, [Some(array::of(TIDOID, positions)), Some(moment(now))])?;
    }
    Ok(())
}

// A successor that somebody else holds is left to them: settling must not wait. One that is due later is ahead
// of the cursors already.
static SUCCESSORS: Statement = Statement {
    sql: "SELECT event.ctid
          FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),
                          pg_catalog.unnest($4)) AS settled (aggregate_type, aggregate_id, created_at, id)
          CROSS JOIN LATERAL (
              SELECT next.id
              FROM ONLY {schema}.outbox_event AS next
              WHERE next.completed_at IS NULL AND next.dead_at IS NULL
                AND next.aggregate_id OPERATOR(pg_catalog.=) settled.aggregate_id
                AND next.aggregate_type::pg_catalog.text OPERATOR(pg_catalog.=) settled.aggregate_type
                AND (next.created_at, next.id) OPERATOR(pg_catalog.>) (settled.created_at, settled.id)
              ORDER BY next.created_at, next.id
              LIMIT 1
          ) AS successor
          JOIN ONLY {schema}.outbox_event AS event ON event.id OPERATOR(pg_catalog.=) successor.id
          WHERE event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'pending'
            AND event.available_at OPERATOR(pg_catalog.<=) $5
          FOR NO KEY UPDATE OF event SKIP LOCKED",
    parameters: &[TEXTARRAYOID, UUIDARRAYOID, TIMESTAMPTZARRAYOID, UUIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};

static MOVE: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET available_at = $2, updated_at = $2
          WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)",
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};
