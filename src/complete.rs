//! Completing: the events were delivered. Their rows stay, as history and to deduplicate, unless
//! `outbox.delete_completed` is on.

use crate::clock;
use crate::datum::Text;
use crate::error::{ErrorReport, Found, OutboxError};
use crate::holder::{Holder, Holders, held};
use crate::plans::{Session, Statement, moment, uuid};
use crate::settings;
use crate::succession::{self, settled};
use pgrx::pg_sys::{self, INT4ARRAYOID, INT4OID, TEXTOID, TIMESTAMPTZOID, UUIDARRAYOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{Array, IntoDatum, Uuid};

/// Marks a leased event as completed: it was delivered and will not be handed out again. With
/// `outbox.delete_completed` the row is deleted instead, and its deduplication key is free.
///
/// With `attempt` (the `attempt_count` that the claim returned) it must be that very attempt: a worker with
/// a stable name, whose lease expired and who claimed the event again, is told apart from itself.
///
/// # Errors
/// `22004` a required argument is NULL; `22023` an argument out of range; `P0002` no such event; `55000`
/// the caller does not hold the lease, and DETAIL says what is found instead.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_complete(
    event_id: Option<Uuid>,
    worker_id: Option<Text<'_>>,
    attempt: default!(Option<i32>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<(), ErrorReport> {
    let holder = Holder::new(event_id, worker_id, attempt)?;
    Ok(complete(&Session::open(call)?, &holder)?)
}

/// Marks leased events as completed, in one statement, and returns the ids of those that it completed:
/// where the lease is not held, the event is left alone and its id does not come back.
///
/// * `attempts`: the `attempt_count` of each event, in the order of `event_ids`; a NULL among them, or NULL
///   for all, does not fence the attempt.
///
/// # Errors
/// `22004` a required argument, or an element of `event_ids`, is NULL; `22023` an argument out of range, or
/// `attempts` of another length than `event_ids`.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_complete_batch(
    event_ids: Option<Array<Uuid>>,
    worker_id: Option<Text<'_>>,
    attempts: default!(Option<Array<i32>>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<SetOfIterator<'static, Uuid>, ErrorReport> {
    let holders = Holders::new(event_ids, worker_id, attempts)?;
    Ok(SetOfIterator::new(complete_batch(&Session::open(call)?, &holders)?))
}

macro_rules! complete {
    ($whose:expr, $now:literal) => {
        concat!(
            "UPDATE ONLY {schema}.outbox_event AS event
             SET status = 'completed', completed_at = ",
            $now,
            ", locked_at = NULL, locked_by = NULL, last_error_code = NULL, updated_at = ",
            $now,
            $whose,
            settled!()
        )
    };
}

macro_rules! delete {
    ($whose:expr) => {
        concat!("DELETE FROM ONLY {schema}.outbox_event AS event", $whose, settled!())
    };
}

macro_rules! held_by_one {
    () => {
        " WHERE event.id OPERATOR(pg_catalog.=) $1
            AND event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing'
            AND event.locked_by OPERATOR(pg_catalog.=) $2
            AND ($3 IS NULL OR event.attempt_count OPERATOR(pg_catalog.=) $3)"
    };
}

static COMPLETE: Statement = Statement {
    sql: complete!(held_by_one!(), "$4"),
    parameters: &[UUIDOID, TEXTOID, INT4OID, TIMESTAMPTZOID],
    seeks: true,
};

static DELETE: Statement =
    Statement { sql: delete!(held_by_one!()), parameters: &[UUIDOID, TEXTOID, INT4OID], seeks: true };

static COMPLETE_BATCH: Statement = Statement {
    sql: complete!(held!(), "$4"),
    parameters: &[UUIDARRAYOID, INT4ARRAYOID, TEXTOID, TIMESTAMPTZOID],
    seeks: true,
};

static DELETE_BATCH: Statement =
    Statement { sql: delete!(held!()), parameters: &[UUIDARRAYOID, INT4ARRAYOID, TEXTOID], seeks: true };

static LOOK: Statement = Statement {
    sql: "SELECT status::pg_catalog.text, locked_by::pg_catalog.text, attempt_count::pg_catalog.int4
          FROM ONLY {schema}.outbox_event WHERE id OPERATOR(pg_catalog.=) $1",
    parameters: &[UUIDOID],
    seeks: true,
};

fn complete(session: &Session, holder: &Holder) -> Result<(), OutboxError> {
    let (event, now) = (Some(uuid(&holder.event)), clock::now());
    let [worker, attempt] = [Some(holder.worker.datum()), holder.attempt.into_datum()];
    let completed = if settings::delete_completed() {
        session.run(&DELETE, [event, worker, attempt])?
    } else {
        session.run(&COMPLETE, [event, worker, attempt, Some(moment(now))])?
    };
    if completed.count() == 1 {
        return succession::advance(session, &completed, now);
    }
    holder.judge(session.run(&LOOK, [event])?.first())?;
    Err(OutboxError::LeaseLost { event: holder.event, found: Found::Unchanged })
}

fn complete_batch(session: &Session, holders: &Holders) -> Result<Vec<Uuid>, OutboxError> {
    let now = clock::now();
    let [events, attempts, worker] = holders.values();
    let completed = if settings::delete_completed() {
        session.run(&DELETE_BATCH, [events, attempts, worker])?
    } else {
        session.run(&COMPLETE_BATCH, [events, attempts, worker, Some(moment(now))])?
    };
    succession::advance(session, &completed, now)?;
    Ok(completed.iter().filter_map(|row| row.get(1)).collect())
}
