//! Extending: the heartbeat of long work keeps its leases from expiring.

use crate::clock;
use crate::datum::Text;
use crate::error::ErrorReport;
use crate::holder::{Holders, held};
use crate::plans::{Session, Statement, moment};
use pgrx::pg_sys::{self, INT4ARRAYOID, TEXTOID, TIMESTAMPTZOID, UUIDARRAYOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};

/// Renews leases: they start now. Returns the ids of the events whose lease the worker held, so that it can
/// drop the work on the others.
///
/// * `attempts`: as in `outbox_complete_batch`.
///
/// # Errors
/// As `outbox_complete_batch`.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_extend_batch(
    event_ids: Option<Array<Uuid>>,
    worker_id: Option<Text<'_>>,
    attempts: default!(Option<Array<i32>>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<SetOfIterator<'static, Uuid>, ErrorReport> {
    let holders = Holders::new(event_ids, worker_id, attempts)?;
    let session = Session::open(call)?;
    let [events, attempts, worker] = holders.values();
    let extended = session.run(&EXTEND, [events, attempts, worker, Some(moment(clock::now()))])?;
    let ids: Vec<Uuid> = extended.iter().filter_map(|row| row.get(1)).collect();
    Ok(SetOfIterator::new(ids))
}

// No indexed column changes: a heartbeat is a HOT update.
static EXTEND: Statement = Statement {
    sql: concat!(
        "UPDATE ONLY {schema}.outbox_event AS event SET locked_at = $4, updated_at = $4",
        held!(),
        " RETURNING event.id::pg_catalog.uuid"
    ),
    parameters: &[UUIDARRAYOID, INT4ARRAYOID, TEXTOID, TIMESTAMPTZOID],
    seeks: true,
};
