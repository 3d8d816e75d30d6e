//! Claiming: a worker leases a batch of events that are due, or whose lease has expired.
//!
//! The scan walks the claim index from its start, locks what it takes and skips what others hold; then one
//! statement takes the locked rows by their position, which cannot change while they are locked. An event
//! whose lease has expired too often is buried instead: a payload that kills its worker never gets to
//! `outbox_fail`.

use crate::aggregate::{earlier, in_flight};
use crate::argument;
use crate::array;
use crate::clock;
use crate::cursor::{Cost, Cursor};
use crate::datum::{Span, Text};
use crate::error::{ErrorReport, OutboxError};
use crate::filter::{Filter, admitted};
use crate::instant::Instant;
use crate::order::Order;
use crate::plans::{Row, Session, Statement, Value, moment};
use crate::queue::{Queue, Way};
use crate::result_set::ResultSet;
use crate::status::Status;
use crate::succession::{self, settled};
use crate::walk::{Stopped, Walk};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{self, BOOLOID, INT8OID, TEXTARRAYOID, TEXTOID, TIDARRAYOID, TIMESTAMPTZOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Leases up to `batch_size` events to a worker.
///
/// * `worker_id`: 1 to 255 bytes; `batch_size`: 1 or more.
/// * `lock_timeout`: above zero; a lease that was taken longer ago than this has expired.
/// * `max_attempts`: an event whose lease expired after so many counted attempts goes to dead instead;
///   NULL means `outbox.max_attempts`.
/// * `only_event_types`, `only_tenant`: only events of these types, of this tenant; NULL means all.
/// * `ordered`: only the first unfinished event of each aggregate, by (created_at, id), and only while no other
///   of the aggregate is in flight.
///
/// Rows come in the order (available_at, created_at, id), by the values found.
///
/// # Errors
/// `22004` a required argument is NULL; `22023` an argument out of range; `40001` under REPEATABLE READ, when
/// an event was changed since the snapshot, and in an ordered claim, when another session claims an event of
/// the same aggregate at the same moment (after a replay or a late commit).
#[pg_extern(sql = r#"
CREATE FUNCTION outbox_claim_batch(
    worker_id text,
    batch_size integer DEFAULT 100,
    lock_timeout interval DEFAULT '5 minutes',
    max_attempts integer DEFAULT NULL,
    only_event_types text[] DEFAULT NULL,
    only_tenant uuid DEFAULT NULL,
    ordered boolean DEFAULT false
) RETURNS TABLE (
    id uuid,
    tenant_id uuid,
    aggregate_type text,
    aggregate_id uuid,
    event_type text,
    deduplication_key text,
    payload jsonb,
    attempt_count integer,
    headers jsonb,
    created_at timestamptz,
    locked_at timestamptz
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::too_many_arguments, reason = "one parameter for each of the SQL function's")]
fn outbox_claim_batch(
    worker_id: Option<Text<'_>>,
    batch_size: Option<i32>,
    lock_timeout: Option<Span>,
    max_attempts: Option<i32>,
    only_event_types: Option<Array<Text<'_>>>,
    only_tenant: Option<Uuid>,
    ordered: Option<bool>,
    call: pg_sys::FunctionCallInfo,
) -> Result<(), ErrorReport> {
    let wanted = Wanted {
        worker: argument::name("worker_id", worker_id)?,
        batch_size: argument::at_least_one("batch_size", batch_size)? as usize,
        lock_timeout: argument::positive("lock_timeout", lock_timeout)?,
        max_attempts: argument::max_attempts(max_attempts)?,
        filter: Filter::new(only_event_types, only_tenant, ordered)?,
    };
    let mut result = ResultSet::begin(call);
    let session = Session::open(call)?;
    session.lock_table();
    for taken in Claim::new(wanted, clock::now()).batch(&session)? {
        result.push((1..=RESULT_COLUMNS).map(|column| taken.value(column)));
    }
    Ok(())
}

/// Arguments that are in order.
struct Wanted<'a> {
    worker: Text<'a>,
    batch_size: usize,
    /// In microseconds.
    lock_timeout: i128,
    max_attempts: i32,
    filter: Filter,
}

/// A claim at a moment.
struct Claim<'a> {
    wanted: Wanted<'a>,
    expired_before: Instant,
    now: Instant,
}

/// A claim that buries some of what it finds scans on, so that a heap of events that kill their workers does
/// not make it come back empty; after this many it leaves the rest to the next claim.
const MOST_BURIED: usize = 1_000;

/// The longest that one claim may spend on a slice of a sweep; the statement that takes what the walk found reads the
/// same entries once more.
///
/// In the tests inside a server there is all the time: they run side by side on one table, whose index holds
/// the entries of them all.
const SLICE: Duration = Duration::from_millis(if cfg!(feature = "pg_test") { 60_000 } else { 2 });

/// Its name is in the message of the error that it raises.
const IN_FLIGHT_INDEX: &str = "outbox_event_in_flight_idx";

impl<'a> Claim<'a> {
    fn new(wanted: Wanted<'a>, now: Instant) -> Self {
        Self { expired_before: now.plus(-wanted.lock_timeout), wanted, now }
    }

    /// The rows taken, in the order of what was found.
    fn batch<'s>(&self, session: &'s Session) -> Result<Vec<Row<'s>>, OutboxError> {
        let mut batch = Batch { wanted: self.wanted.batch_size, taken: Vec::new() };
        let Wanted { lock_timeout, filter, .. } = &self.wanted;
        match Queue::of(session, Way::Claim { lock_timeout: *lock_timeout, filter: filter.clone() }) {
            Some(queue) => self.follow_cursor(session, &queue, &mut batch)?,
            None => {
                self.fill(session, &mut batch, (Order::FIRST, self.end()), usize::MAX)?;
            }
        }
        Ok(batch.in_order())
    }

    /// Scans from the cursor on, and sweeps behind it when it is time, or when there is room and it is cheap.
    fn follow_cursor<'s>(
        &self,
        session: &'s Session,
        queue: &Queue,
        batch: &mut Batch<'s>,
    ) -> Result<(), OutboxError> {
        let (position, due) = queue.begin(self.now);
        if due {
            self.sweep(session, queue, batch, position)?;
        }
        let others = self.wanted.filter.ordered && queue.cursor(self.now, Cursor::takes_turns);
        if others {
            self.succeed(session, batch, batch.room().div_ceil(2))?;
        }
        let (last, full, cost) = if self.wanted.filter.ordered && position == Order::FIRST {
            // To pass a heap of events that wait for others, a walk is much quicker than the statement.
            let (stopped, cost) = self.comb(session, queue, batch, (position, self.end()), Duration::MAX)?;
            (stopped, stopped.is_some(), cost)
        } else {
            let (last, full) = self.fill(session, batch, (position, self.end()), usize::MAX)?;
            (last, full, Cost::default())
        };
        if self.wanted.filter.ordered {
            self.succeed(session, batch, batch.room())?;
        }
        let cheap = queue.scanned(self.now, last, full, cost);
        if batch.room() > 0 && !full && !due && cheap && position != Order::FIRST {
            self.sweep(session, queue, batch, position)?;
        }
        Ok(())
    }

    /// Takes up to so many successors of events that this session has settled in order.
    fn succeed<'s>(
        &self,
        session: &'s Session,
        batch: &mut Batch<'s>,
        most: usize,
    ) -> Result<(), OutboxError> {
        let successors = succession::successors(session, &self.wanted.filter, most, self.now)?;
        let found: Vec<_> = successors.iter().filter_map(Found::read).collect();
        self.take(session, &found, batch)
    }

    /// One slice of a sweep: looks for claimable events behind the cursor, and takes those it finds.
    fn sweep<'s>(
        &self,
        session: &'s Session,
        queue: &Queue,
        batch: &mut Batch<'s>,
        position: Order,
    ) -> Result<(), OutboxError> {
        let at = clock::steady();
        let (from, budget) = queue.cursor(self.now, |cursor| (cursor.sweep_from(), cursor.slice(SLICE, at)));
        let (stopped, cost) = self.comb(session, queue, batch, (from, position), budget)?;
        queue.cursor(self.now, |cursor| cursor.swept(stopped, cost, clock::steady()));
        Ok(())
    }

    /// Walks along a stretch of the queue, and takes what it finds. Returns where it stopped before the end, if it
    /// did, and what the walking cost.
    fn comb<'s>(
        &self,
        session: &'s Session,
        queue: &Queue,
        batch: &mut Batch<'s>,
        (mut from, to): (Order, Order),
        budget: Duration,
    ) -> Result<(Option<Order>, Cost), OutboxError> {
        let (started, mut cost) = (clock::steady(), Cost::default());
        let stopped = loop {
            let begun = clock::steady();
            let budget = budget.saturating_sub(begun - started);
            let Wanted { filter, .. } = &self.wanted;
            let expired_before = self.expired_before;
            let walk = Walk { queue, filter, from, to, expired_before, wanted: batch.room(), budget };
            let Some(findings) = walk.run() else {
                // Not to be walked: the statement looks, at whatever cost.
                let (last, full) = self.fill(session, batch, (from, to), usize::MAX)?;
                cost.time += clock::steady() - begun;
                break if full { last } else { None };
            };
            cost.time += clock::steady() - begun;
            cost.entries += findings.entries;
            if let Some(span) = findings.span {
                self.fill(session, batch, span, findings.claimable)?;
            }
            match findings.stopped {
                // Events that were buried have left room for more.
                Stopped::Enough(at) if batch.room() > 0 && !budget.is_zero() => from = at,
                Stopped::Enough(at) | Stopped::OutOfTime(at) => break Some(at),
                Stopped::AtTheEnd => break None,
            }
        };
        Ok((stopped, cost))
    }

    /// Behind every event that is due.
    fn end(&self) -> Order {
        Order::end_of(self.now)
    }

    /// Takes claimable events of a stretch of the queue until the batch is full, or as many were met as there
    /// are known to be. (A scan ends by the first column of its bound only: among events of one available_at
    /// it would go on looking.) Returns the last event that it found, and whether it stopped for being full.
    fn fill<'s>(
        &self,
        session: &'s Session,
        batch: &mut Batch<'s>,
        (from, to): (Order, Order),
        mut known: usize,
    ) -> Result<(Option<Order>, bool), OutboxError> {
        let (mut last, mut buried) = (None, 0);
        while batch.room().min(known) > 0 && buried < MOST_BURIED {
            let wanted = batch.room().min(known);
            let found = self.scan(session, from, to, wanted)?;
            last = last.max(found.last);
            self.bury(session, &found.spent)?;
            self.give_back(session, &found.overtaken)?;
            self.take(session, &found.claimable, batch)?;
            let passed = found.spent.len() + found.overtaken.len();
            let exhausted = passed + found.claimable.len() < wanted;
            buried += passed;
            known -= passed + found.claimable.len();
            // In order, what was passed may have made way for others.
            if passed == 0 || exhausted && !self.wanted.filter.ordered {
                return Ok((last, !exhausted));
            }
        }
        Ok((last, true))
    }

    /// Finds and locks events.
    fn scan(
        &self,
        session: &Session,
        from: Order,
        to: Order,
        wanted: usize,
    ) -> Result<Findings, OutboxError> {
        let bound = |bound: &Order| {
            let id = pg_sys::Datum::from(bound.id.as_ptr());
            [Some(moment(bound.available_at)), Some(moment(bound.created_at)), Some(id)]
        };
        let ([a, b, c], [d, e, f]) = (bound(&from), bound(&to));
        let (expired_before, limit) = (moment(self.expired_before), pg_sys::Datum::from(wanted as i64));
        let [event_types, tenant] = self.wanted.filter.values();
        let statement = if self.wanted.filter.ordered { &SCAN_IN_ORDER } else { &SCAN };
        let rows = session
            .run(statement, [a, b, c, d, e, f, Some(expired_before), Some(limit), event_types, tenant])?;
        let mut findings = Findings::default();
        for found in rows.iter().filter_map(|row| Found::read(&row)) {
            findings.last = findings.last.max(Some(found.order));
            let spent = found.expired && found.counted_attempts >= i64::from(self.wanted.max_attempts);
            match (spent, found.overtaken) {
                (true, _) => findings.spent.push(found),
                (false, true) => findings.overtaken.push(found),
                (false, false) => findings.claimable.push(found),
            }
        }
        Ok(findings)
    }

    fn take<'s>(
        &self,
        session: &'s Session,
        found: &[Found],
        batch: &mut Batch<'s>,
    ) -> Result<(), OutboxError> {
        if found.is_empty() {
            return Ok(());
        }
        let orders: HashMap<_, _> = found.iter().map(|found| (found.order.id, found.order)).collect();
        let values = [
            positions(found),
            Some(moment(self.now)),
            Some(self.wanted.worker.datum()),
            self.wanted.filter.ordered.then_some(pg_sys::Datum::from(true)),
        ];
        let taken = self.or_lost(|| session.run(&TAKE, values))?;
        let in_order = |row: Row<'s>| Some((*orders.get(row.get::<Uuid>(1)?.as_bytes())?, row));
        batch.taken.extend(taken.iter().filter_map(in_order));
        Ok(())
    }

    /// One event of an aggregate may be in flight by an ordered claim: the unique index says so also to a
    /// session that cannot see yet what another has claimed (after a replay or a late commit). To be told of
    /// it is 40001 rather than 23505.
    fn or_lost<T>(&self, take: impl FnOnce() -> Result<T, OutboxError>) -> Result<T, OutboxError> {
        PgTryBuilder::new(AssertUnwindSafe(take))
            .catch_when(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, |error| match &error {
                CaughtError::PostgresError(report) if report.message().contains(IN_FLIGHT_INDEX) => {
                    Err(OutboxError::ClaimLost)
                }
                _ => error.rethrow(),
            })
            .execute()
    }

    /// Sends events to dead.
    fn bury(&self, session: &Session, spent: &[Found]) -> Result<(), OutboxError> {
        if spent.is_empty() {
            return Ok(());
        }
        let buried = session.run(&BURY, [positions(spent), Some(moment(self.now))])?;
        succession::advance(session, &buried, self.now)
    }

    /// Ends expired leases of events that an earlier one of their aggregate has come before, by a replay or a
    /// late commit: it is the earlier one's turn, which waits for as long as the later one is in flight.
    fn give_back(&self, session: &Session, overtaken: &[Found]) -> Result<(), OutboxError> {
        if !overtaken.is_empty() {
            session.run(&GIVE_BACK, [positions(overtaken), Some(moment(self.now))])?;
        }
        Ok(())
    }
}

/// The rows that a claim has taken so far.
struct Batch<'s> {
    wanted: usize,
    taken: Vec<(Order, Row<'s>)>,
}

impl<'s> Batch<'s> {
    fn room(&self) -> usize {
        self.wanted - self.taken.len()
    }

    fn in_order(mut self) -> Vec<Row<'s>> {
        self.taken.sort_unstable_by_key(|(order, _)| *order);
        self.taken.into_iter().map(|(_, row)| row).collect()
    }
}

/// What a scan found, and has locked.
#[derive(Default)]
struct Findings {
    claimable: Vec<Found>,
    /// Their leases have expired, and their attempts are used up.
    spent: Vec<Found>,
    /// Their leases have expired, and in order it is not their turn.
    overtaken: Vec<Found>,
    last: Option<Order>,
}

/// An event that the scan found.
struct Found {
    position: pg_sys::ItemPointerData,
    order: Order,
    expired: bool,
    counted_attempts: i64,
    overtaken: bool,
}

impl Found {
    fn read(row: &Row) -> Option<Self> {
        let status = Status::parse(row.get::<Text>(5)?.bytes())?;
        Some(Self {
            position: row.get(1)?,
            order: Order {
                available_at: row.get(2)?,
                created_at: row.get(3)?,
                id: *row.get::<Uuid>(4)?.as_bytes(),
            },
            expired: status == Status::Processing,
            counted_attempts: row.get(6)?,
            overtaken: row.get(7)?,
        })
    }
}

// The predicates on completed_at and dead_at are literals, so that they prove the claim index under a
// generic plan. A lease without a start (written past the trigger, by replication) has expired. NO KEY
// UPDATE, since FOR UPDATE would block the inserts of rows that refer to the event.
macro_rules! scan {
    ($overtaken:expr, $turn:expr, $alone:expr) => {
        Statement {
            sql: concat!(
                "SELECT event.ctid, event.available_at::pg_catalog.timestamptz,
                        event.created_at::pg_catalog.timestamptz, event.id::pg_catalog.uuid,
                        event.status::pg_catalog.text,
                        event.attempt_count::pg_catalog.int8
                            OPERATOR(pg_catalog.-) event.forgiven_attempts::pg_catalog.int8, ",
                $overtaken,
                " FROM ONLY {schema}.outbox_event AS event
                  WHERE event.completed_at IS NULL AND event.dead_at IS NULL
                    AND (event.available_at, event.created_at, event.id) OPERATOR(pg_catalog.>=) ($1, $2, $3)
                    AND (event.available_at, event.created_at, event.id) OPERATOR(pg_catalog.<=) ($4, $5, $6)
                    AND ",
                admitted!("$9", "$10"),
                "   AND (event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'pending' ",
                $turn,
                "        OR event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing'
                            AND (event.locked_at IS NULL OR event.locked_at OPERATOR(pg_catalog.<) $7) ",
                $alone,
                ")
                  ORDER BY event.available_at, event.created_at, event.id
                  LIMIT $8
                  FOR NO KEY UPDATE OF event SKIP LOCKED"
            ),
            parameters: &[
                TIMESTAMPTZOID,
                TIMESTAMPTZOID,
                UUIDOID,
                TIMESTAMPTZOID,
                TIMESTAMPTZOID,
                UUIDOID,
                TIMESTAMPTZOID,
                INT8OID,
                TEXTARRAYOID,
                UUIDOID,
            ],
            seeks: true,
        }
    };
}

static SCAN: Statement = scan!("false", "", "");

// An expired lease that was taken without order may lie beside one in flight.
static SCAN_IN_ORDER: Statement = scan!(
    concat!(
        "event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing' AND ",
        earlier!(),
        " IS NOT NULL"
    ),
    concat!("AND ", earlier!(), " IS NULL AND ", in_flight!(), " IS NULL"),
    concat!("AND (event.claimed_in_order OR ", in_flight!(), " IS NULL)")
);

const RESULT_COLUMNS: i32 = 11;

// claimed_in_order stays as it is, null, in claims without an order: that is what keeps them HOT.
//
// The rows are locked, so nobody can have moved them since the scan. ONLY, here as in the scan: a position
// names a row of one table, and a child's row may have the same. An expired lease's event goes to the
// back of the queue, so that work that hangs does not starve what is fresh; otherwise no indexed column
// changes, and the update is a HOT one.
static TAKE: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET status = 'processing', locked_at = $2, locked_by = $3, updated_at = $2,
              attempt_count = least(attempt_count, 2147483646) OPERATOR(pg_catalog.+) 1,
              available_at = CASE WHEN status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing'
                                  THEN $2 ELSE available_at END,
              claimed_in_order = $4
          WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)
          RETURNING id::pg_catalog.uuid, tenant_id::pg_catalog.uuid, aggregate_type::pg_catalog.text,
                    aggregate_id::pg_catalog.uuid, event_type::pg_catalog.text,
                    deduplication_key::pg_catalog.text, payload::pg_catalog.jsonb,
                    attempt_count::pg_catalog.int4, headers::pg_catalog.jsonb,
                    created_at::pg_catalog.timestamptz, locked_at::pg_catalog.timestamptz",
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID, TEXTOID, BOOLOID],
    seeks: true,
};

static BURY: Statement = Statement {
    sql: concat!(
        "UPDATE ONLY {schema}.outbox_event AS event
         SET status = 'dead', dead_at = $2, locked_at = NULL, locked_by = NULL, updated_at = $2,
             last_error_code = 'lease_expired'
         WHERE event.ctid OPERATOR(pg_catalog.=) ANY ($1)",
        settled!()
    ),
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};

static GIVE_BACK: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET status = 'pending', locked_at = NULL, locked_by = NULL, updated_at = $2,
              last_error_code = 'lease_expired'
          WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)",
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};

/// The positions as a `tid[]`.
fn positions(found: &[Found]) -> Value {
    let position = |found: &Found| Some(pg_sys::Datum::from(std::ptr::from_ref(&found.position)));
    Some(array::of(pg_sys::TIDOID, found.iter().map(position)))
}
