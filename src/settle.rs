//! Settling: the worker that holds an event's lease completes it or fails it.

use crate::argument;
use crate::backoff;
use crate::clock;
use crate::datum::Text;
use crate::encoding;
use crate::error::{ErrorReport, Found, OutboxError};
use crate::instant::Instant;
use crate::lease::Lease;
use crate::plans::{Row, Session, Statement, moment, uuid};
use crate::settings;
use crate::status::Status;
use pgrx::pg_sys::{self, INT4OID, TEXTOID, TIMESTAMPTZOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{IntoDatum, Uuid};

/// Marks a leased event as completed: it was delivered and will not be handed out again.
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
    let failure = Failure {
        error_code: argument::error_code(error_code)?,
        max_attempts: argument::max_attempts(max_attempts)?,
        next_attempt: argument::finite("next_attempt", next_attempt)?,
    };
    Ok(fail(&Session::open(call)?, &holder, &failure)?.as_str().to_owned())
}

/// Who says that it holds which lease.
struct Holder<'a> {
    event: Uuid,
    worker: Text<'a>,
    attempt: Option<i32>,
}

impl<'a> Holder<'a> {
    fn new(event: Option<Uuid>, worker: Option<Text<'a>>, attempt: Option<i32>) -> Result<Self, OutboxError> {
        Ok(Self {
            event: argument::required("event_id", event)?,
            worker: argument::name("worker_id", worker)?,
            attempt,
        })
    }

    /// Whether the row says so too. `row` starts with status, locked_by and attempt_count.
    fn judge(&self, row: Option<Row>) -> Result<(), OutboxError> {
        let event = self.event;
        let row = row.ok_or(OutboxError::NoSuchEvent { event })?;
        let worker = row.get::<Text>(2);
        let status = row.get::<Text>(1).and_then(|status| Status::parse(status.bytes()));
        let lease = Lease {
            status: status.ok_or(OutboxError::NoSuchEvent { event })?,
            worker: worker.as_ref().map(|worker| worker.bytes()),
            attempt: row.get(3).unwrap_or_default(),
        };
        lease
            .held_by(self.worker.bytes(), self.attempt, encoding::for_message)
            .map_err(|found| OutboxError::LeaseLost { event, found })
    }
}

static COMPLETE: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET status = 'completed', completed_at = $4, locked_at = NULL, locked_by = NULL,
              last_error_code = NULL, updated_at = $4
          WHERE id OPERATOR(pg_catalog.=) $1
            AND status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing'
            AND locked_by OPERATOR(pg_catalog.=) $2
            AND ($3 IS NULL OR attempt_count OPERATOR(pg_catalog.=) $3)",
    parameters: &[UUIDOID, TEXTOID, INT4OID, TIMESTAMPTZOID],
    seeks: true,
};

static LOOK: Statement = Statement {
    sql: "SELECT status::pg_catalog.text, locked_by::pg_catalog.text, attempt_count::pg_catalog.int4
          FROM ONLY {schema}.outbox_event WHERE id OPERATOR(pg_catalog.=) $1",
    parameters: &[UUIDOID],
    seeks: true,
};

fn complete(session: &Session, holder: &Holder) -> Result<(), OutboxError> {
    let event = Some(uuid(&holder.event));
    let completed = session.run(
        &COMPLETE,
        [event, Some(holder.worker.datum()), holder.attempt.into_datum(), Some(moment(clock::now()))],
    )?;
    if completed.count() == 1 {
        return Ok(());
    }
    holder.judge(session.run(&LOOK, [event])?.first())?;
    Err(OutboxError::LeaseLost { event: holder.event, found: Found::Unchanged })
}

/// How an attempt failed, and what follows from it.
struct Failure<'a> {
    error_code: Text<'a>,
    max_attempts: i32,
    next_attempt: Option<Instant>,
}

static LOCK: Statement = Statement {
    sql: "SELECT status::pg_catalog.text, locked_by::pg_catalog.text, attempt_count::pg_catalog.int4,
                 attempt_count::pg_catalog.int8 OPERATOR(pg_catalog.-) forgiven_attempts::pg_catalog.int8
          FROM ONLY {schema}.outbox_event WHERE id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE",
    parameters: &[UUIDOID],
    seeks: true,
};

static FAIL: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET status = $2, dead_at = $3, available_at = coalesce($4, available_at), last_error_code = $5,
              locked_at = NULL, locked_by = NULL, updated_at = $6
          WHERE id OPERATOR(pg_catalog.=) $1",
    parameters: &[UUIDOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID],
    seeks: true,
};

fn fail(session: &Session, holder: &Holder, failure: &Failure) -> Result<Status, OutboxError> {
    let event = Some(uuid(&holder.event));
    let row = session.run(&LOCK, [event])?.first();
    holder.judge(row)?;
    let attempts: i64 = row.and_then(|row| row.get(4)).unwrap_or_default();
    let now = clock::now();
    let dead = attempts >= i64::from(failure.max_attempts);
    let status = if dead { Status::Dead } else { Status::Pending };
    // A dead event keeps its available_at.
    let available_at = (!dead).then(|| failure.next_attempt.unwrap_or_else(|| retry_at(now, attempts)));
    let failed = session.run(
        &FAIL,
        [
            event,
            status.as_str().into_datum(),
            dead.then(|| moment(now)),
            available_at.map(moment),
            Some(failure.error_code.datum()),
            Some(moment(now)),
        ],
    )?;
    match failed.count() {
        1 => Ok(status),
        _ => Err(OutboxError::LeaseLost { event: holder.event, found: Found::Unchanged }),
    }
}

/// When an event that has failed is due again, if the worker does not say.
fn retry_at(now: Instant, attempts: i64) -> Instant {
    let milliseconds = |setting: i32| std::time::Duration::from_millis(setting.max(0) as u64);
    let (base, max) = (milliseconds(settings::backoff_base()), milliseconds(settings::backoff_max()));
    // SAFETY: PostgreSQL seeds this state when a backend starts.
    let draw = unsafe { pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state) };
    now.plus(backoff::delay(attempts, base, max, draw).as_micros() as i128)
}
