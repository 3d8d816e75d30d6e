//! Releasing: a worker that shuts down gives back what it has not begun.

use crate::argument;
use crate::clock;
use crate::datum::Text;
use crate::error::ErrorReport;
use crate::holder::{Holders, held};
use crate::instant::Instant;
use crate::plans::{Session, Statement, moment};
use pgrx::pg_sys::{self, INT4ARRAYOID, TEXTOID, TIMESTAMPTZOID, UUIDARRAYOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};

/// Gives leased events back: pending again, and the attempt forgiven. Returns the ids of those that it
/// gave back: where the lease is not held, the event is left alone.
///
/// * `available_at`: when they may be claimed; NULL means now.
/// * `attempts`: as in `outbox_complete_batch`.
///
/// # Errors
/// As `outbox_complete_batch`.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_release_batch(
    event_ids: Option<Array<Uuid>>,
    worker_id: Option<Text<'_>>,
    available_at: default!(Option<Instant>, "NULL"),
    attempts: default!(Option<Array<i32>>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<SetOfIterator<'static, Uuid>, ErrorReport> {
    let holders = Holders::new(event_ids, worker_id, attempts)?;
    let available_at = argument::finite("available_at", available_at)?;
    let session = Session::open(call)?;
    let (now, [events, attempts, worker]) = (clock::now(), holders.values());
    let available_at = Some(moment(available_at.unwrap_or(now)));
    let released = session.run(&RELEASE, [events, attempts, worker, available_at, Some(moment(now))])?;
    let ids: Vec<Uuid> = released.iter().filter_map(|row| row.get(1)).collect();
    Ok(SetOfIterator::new(ids))
}

// Available from now on rather than from when it was: cursors have passed its old place.
static RELEASE: Statement = Statement {
    sql: concat!(
        "UPDATE ONLY {schema}.outbox_event AS event
         SET status = 'pending', available_at = $4, locked_at = NULL, locked_by = NULL, updated_at = $5,
             forgiven_attempts = least(event.forgiven_attempts OPERATOR(pg_catalog.+) 1, event.attempt_count)",
        held!(),
        " RETURNING event.id::pg_catalog.uuid"
    ),
    parameters: &[UUIDARRAYOID, INT4ARRAYOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID],
    seeks: true,
};
