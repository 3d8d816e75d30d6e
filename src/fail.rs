//! Failing: an attempt is over, and the event waits for the next one, or is dead once its budget is used up.

use crate::argument;
use crate::array;
use crate::backoff;
use crate::clock;
use crate::datum::Text;
use crate::error::{ErrorReport, Found, OutboxError};
use crate::holder::{Holder, Holders, held, of_event};
use crate::instant::Instant;
use crate::plans::{Row, Rows, Session, Statement, moment, uuid};
use crate::settings;
use crate::succession::{self, settled};
use pgrx::pg_sys::{self, INT4ARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, UUIDARRAYOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};

/// Ends a leased event's attempt: back to pending, to be claimed again at `next_attempt`, or to dead once
/// its counted attempts reach `max_attempts`. Returns the new status.
///
/// * `error_code`: why, in at least 1 byte; cut to 1024 bytes.
/// * `max_attempts`: 0 (dead at the first failure) or more; NULL means `outbox.max_attempts`.
/// * `next_attempt`: NULL means exponential backoff with full jitter, from `outbox.backoff_base` and
///   `outbox.backoff_max`; a moment that has passed means at once.
/// * `attempt`: as in `outbox_complete`.
///
/// # Errors
/// As `outbox_complete`.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_fail(
    event_id: Option<Uuid>,
    worker_id: Option<Text<'_>>,
    error_code: Option<Text<'_>>,
    max_attempts: default!(Option<i32>, "NULL"),
    next_attempt: default!(Option<Instant>, "NULL"),
    attempt: default!(Option<i32>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<String, ErrorReport> {
    let holder = Holder::new(event_id, worker_id, attempt)?;
    let failure = Failure::new(error_code, max_attempts, next_attempt)?;
    Ok(fail(&Session::open(call)?, &holder, &failure)?)
}

/// Ends the attempts of leased events, each as `outbox_fail` does, and returns the ids and the new status of
/// those that it failed: where the lease is not held, the event is left alone and does not come back.
///
/// * `attempts`: as in `outbox_complete_batch`; the rest as in `outbox_fail`. Each event's delay is drawn by
///   itself.
///
/// # Errors
/// As `outbox_complete_batch`.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_fail_batch(
    event_ids: Option<Array<Uuid>>,
    worker_id: Option<Text<'_>>,
    error_code: Option<Text<'_>>,
    max_attempts: default!(Option<i32>, "NULL"),
    next_attempt: default!(Option<Instant>, "NULL"),
    attempts: default!(Option<Array<i32>>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<TableIterator<'static, (name!(id, Uuid), name!(status, String))>, ErrorReport> {
    let holders = Holders::new(event_ids, worker_id, attempts)?;
    let failure = Failure::new(error_code, max_attempts, next_attempt)?;
    Ok(TableIterator::new(fail_batch(&Session::open(call)?, &holders, &failure)?))
}

/// How an attempt failed, and what follows from it.
struct Failure<'a> {
    error_code: Text<'a>,
    max_attempts: i32,
    next_attempt: Option<Instant>,
}

impl<'a> Failure<'a> {
    fn new(
        error_code: Option<Text<'a>>,
        max_attempts: Option<i32>,
        next_attempt: Option<Instant>,
    ) -> Result<Self, OutboxError> {
        Ok(Self {
            error_code: argument::error_code(error_code)?,
            max_attempts: argument::max_attempts(max_attempts)?,
            next_attempt: argument::finite("next_attempt", next_attempt)?,
        })
    }

    /// When an event with so many counted attempts is due again; never, when its budget is used up.
    fn due(&self, attempts: i64, now: Instant) -> Option<Instant> {
        let dead = attempts >= i64::from(self.max_attempts);
        (!dead).then(|| self.next_attempt.unwrap_or_else(|| retry_at(now, attempts)))
    }
}

static LOCK: Statement = Statement {
    sql: "SELECT status::pg_catalog.text, locked_by::pg_catalog.text, attempt_count::pg_catalog.int4,
                 attempt_count::pg_catalog.int8 OPERATOR(pg_catalog.-) forgiven_attempts::pg_catalog.int8
          FROM ONLY {schema}.outbox_event WHERE id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE",
    parameters: &[UUIDOID],
    seeks: true,
};

static LOCK_BATCH: Statement = Statement {
    sql: concat!(
        "SELECT event.id::pg_catalog.uuid, event.attempt_count::pg_catalog.int8
                    OPERATOR(pg_catalog.-) event.forgiven_attempts::pg_catalog.int8
         FROM ONLY {schema}.outbox_event AS event",
        held!(),
        " FOR NO KEY UPDATE OF event"
    ),
    parameters: &[UUIDARRAYOID, INT4ARRAYOID, TEXTOID],
    seeks: true,
};

// A dead event keeps its available_at. The rows are locked: what was judged still holds.
static FAIL: Statement = Statement {
    sql: concat!(
        "UPDATE ONLY {schema}.outbox_event AS event
         SET status = CASE WHEN ",
        of_event!("$2"),
        " IS NULL THEN 'dead' ELSE 'pending' END,
             dead_at = CASE WHEN ",
        of_event!("$2"),
        " IS NULL THEN $4 END,
             available_at = coalesce(",
        of_event!("$2"),
        ", event.available_at), last_error_code = $3, locked_at = NULL, locked_by = NULL, updated_at = $4
         WHERE event.id OPERATOR(pg_catalog.=) ANY ($1)",
        settled!(),
        ", event.status::pg_catalog.text"
    ),
    parameters: &[UUIDARRAYOID, TIMESTAMPTZARRAYOID, TEXTOID, TIMESTAMPTZOID],
    seeks: true,
};

fn fail(session: &Session, holder: &Holder, failure: &Failure) -> Result<String, OutboxError> {
    let row = session.run(&LOCK, [Some(uuid(&holder.event))])?.first();
    holder.judge(row)?;
    let attempts = row.and_then(|row| row.get(4)).unwrap_or_default();
    let failed = settle(session, &[(holder.event, attempts)], failure)?;
    let status = failed.first().and_then(|row| row.get(6));
    status.ok_or(OutboxError::LeaseLost { event: holder.event, found: Found::Unchanged })
}

fn fail_batch(
    session: &Session,
    holders: &Holders,
    failure: &Failure,
) -> Result<Vec<(Uuid, String)>, OutboxError> {
    let locked = session.run(&LOCK_BATCH, holders.values())?;
    let mut events: Vec<(Uuid, i64)> =
        locked.iter().filter_map(|row: Row| Some((row.get(1)?, row.get(2)?))).collect();
    events.sort_unstable_by_key(|(event, _)| *event.as_bytes());
    let failed = settle(session, &events, failure)?;
    Ok(failed.iter().filter_map(|row| Some((row.get(1)?, row.get(6)?))).collect())
}

/// Ends the attempt of events that are locked, in the order of their ids; each with its counted attempts.
fn settle<'s>(
    session: &'s Session,
    events: &[(Uuid, i64)],
    failure: &Failure,
) -> Result<Rows<'s>, OutboxError> {
    let now = clock::now();
    let ids = events.iter().map(|(event, _)| Some(uuid(event)));
    let due = events.iter().map(|&(_, attempts)| failure.due(attempts, now).map(moment));
    let failed = session.run(
        &FAIL,
        [
            Some(array::of(UUIDOID, ids)),
            Some(array::of(TIMESTAMPTZOID, due)),
            Some(failure.error_code.datum()),
            Some(moment(now)),
        ],
    )?;
    succession::advance(session, &failed, now)?;
    Ok(failed)
}

/// When an event that has failed is due again, if the worker does not say.
fn retry_at(now: Instant, attempts: i64) -> Instant {
    let milliseconds = |setting: i32| std::time::Duration::from_millis(setting.max(0) as u64);
    let (base, max) = (milliseconds(settings::backoff_base()), milliseconds(settings::backoff_max()));
    // SAFETY: PostgreSQL seeds this state when a backend starts.
    let draw = unsafe { pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state) };
    now.plus(backoff::delay(attempts, base, max, draw).as_micros() as i128)
}
