//! Retention: events that have ended are deleted, in bounded bites, beside running workers.
//!
//! While a snapshot is held, the index entries of what was deleted stay, and every bite from the front would walk
//! them all. So a purge starts where the session's last one got to, and goes back to the front now and then: the
//! claim's cursor, in the order of the ends.

use crate::argument;
use crate::clock;
use crate::cursor::Cost;
use crate::datum::{Span, Text};
use crate::error::{ErrorReport, OutboxError};
use crate::instant::Instant;
use crate::order::Order;
use crate::plans::{Session, Statement, moment};
use crate::queue::{Queue, Way};
use crate::status::Status;
use pgrx::pg_sys::{self, INT8OID, TIDARRAYOID, TIMESTAMPTZOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};

/// Deletes events that ended longer ago than `older_than`, at most `max_events` of them, and returns how many
/// they were. With an event ends the deduplication of its key.
///
/// * `older_than`: zero (whatever has ended) or more; it counts from `completed_at` or `dead_at`.
/// * `max_events`: 1 or more.
/// * `statuses`: `completed`, `dead` or both. Those of the first status go first, and within a status those that
///   ended first.
///
/// Events that another transaction has locked are passed over: a purge waits for nobody.
///
/// # Errors
/// `22004` an argument, or an element of statuses, is NULL; `22023` an argument out of range; `40001` under
/// REPEATABLE READ, when an event was changed since the snapshot.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_purge(
    older_than: Option<Span>,
    max_events: default!(Option<i32>, 10000),
    statuses: default!(Option<Array<'_, Text<'_>>>, "'{completed}'"),
    call: pg_sys::FunctionCallInfo,
) -> Result<i64, ErrorReport> {
    let older_than = argument::not_negative("older_than", older_than)?;
    let most = argument::at_least_one("max_events", max_events)?;
    let ends = ends(argument::elements("statuses", statuses.as_ref())?)?;
    let session = Session::open(call)?;
    session.lock_table();
    let mut bite = Bite {
        session: &session,
        ended_by: clock::now().plus(-older_than),
        room: i64::from(most),
        deleted: 0,
    };
    ends.into_iter().try_for_each(|end| bite.take(end))?;
    Ok(bite.deleted)
}

/// How an event has ended.
struct End {
    status: Status,
    find: &'static Statement,
}

fn ends(statuses: Vec<Text>) -> Result<Vec<End>, OutboxError> {
    if statuses.is_empty() {
        return argument::invalid("statuses", "empty", "Pass completed, dead or both.");
    }
    let end = |status: Text| match Status::parse(status.bytes()) {
        Some(status @ Status::Completed) => Ok(End { status, find: &FIND_COMPLETED }),
        Some(status @ Status::Dead) => Ok(End { status, find: &FIND_DEAD }),
        _ => argument::invalid(
            "statuses",
            "no list of ends of an event",
            "Pass completed, dead or both: what has not ended is never deleted.",
        ),
    };
    statuses.into_iter().map(end).collect()
}

/// A purge at a moment.
struct Bite<'s> {
    session: &'s Session,
    ended_by: Instant,
    room: i64,
    deleted: i64,
}

impl Bite<'_> {
    /// Deletes from the cursor on, and behind it when it is time, or when there is room and it is cheap. The
    /// cursor's clock is the moment by which events have to have ended: what ends later comes behind it.
    fn take(&mut self, end: End) -> Result<(), OutboxError> {
        let Some(queue) = Queue::of(self.session, Way::Purge(end.status)) else {
            return self.delete(&end, Order::FIRST, self.last()).map(drop);
        };
        let (position, due) = queue.begin(self.ended_by);
        if due {
            self.sweep(&end, &queue, position)?;
        }
        let (reached, full) = self.delete(&end, position, self.last())?;
        let cheap = queue.scanned(self.ended_by, reached, full, Cost::default());
        if !full && !due && cheap && position != Order::FIRST {
            self.sweep(&end, &queue, position)?;
        }
        Ok(())
    }

    /// Deletes what was passed over before.
    fn sweep(&mut self, end: &End, queue: &Queue, position: Order) -> Result<(), OutboxError> {
        let (started, deleted, buffers) = (clock::steady(), self.deleted, buffers());
        self.delete(end, Order::FIRST, position)?;
        let ended = clock::steady();
        let walked = self::buffers() - buffers - BUFFERS_PER_EVENT * (self.deleted - deleted);
        let cost = Cost { entries: usize::try_from(walked).unwrap_or(0), time: ended - started };
        queue.cursor(self.ended_by, |cursor| cursor.swept(None, cost, ended));
        Ok(())
    }

    /// Behind every event that ended in time.
    fn last(&self) -> Order {
        Order::end_of(self.ended_by)
    }

    /// Deletes as many events of a stretch as there is room for. Returns the last that it found, and whether it
    /// stopped for being full.
    fn delete(&mut self, end: &End, from: Order, to: Order) -> Result<(Option<Order>, bool), OutboxError> {
        let bound =
            |order: &Order| [Some(moment(order.available_at)), Some(pg_sys::Datum::from(order.id.as_ptr()))];
        let ([a, b], [c, d]) = (bound(&from), bound(&to));
        let found = self.session.run(end.find, [a, b, c, d, Some(pg_sys::Datum::from(self.room))])?;
        let found = found.first().and_then(|row| {
            let id: Uuid = row.get(3)?;
            let reached = Order { id: *id.as_bytes(), ..Order::start_of(row.get(2)?) };
            Some((row.value(1), reached, row.get::<i64>(4)?))
        });
        let Some((positions, reached, count)) = found else { return Ok((None, self.room == 0)) };
        let deleted = self.session.run(&DELETE, [positions])?.count() as i64;
        self.deleted += deleted;
        let full = count >= self.room;
        self.room -= count;
        Ok((Some(reached), full))
    }
}

/// A walk is measured in the pages that it touches, since on a busy machine any measured time can come out long.
fn buffers() -> i64 {
    // SAFETY: a plain variable of this backend's one thread.
    unsafe { pg_sys::pgBufferUsage.shared_blks_hit + pg_sys::pgBufferUsage.shared_blks_read }
}

/// How many of them it takes at most to find an event, lock and delete it.
const BUFFERS_PER_EVENT: i64 = 8;

macro_rules! find {
    ($status:literal, $ended:literal) => {
        Statement {
            sql: concat!(
                "SELECT pg_catalog.array_agg(found.ctid), pg_catalog.max(found.ended),
                        (pg_catalog.array_agg(found.id))[pg_catalog.count(*)::pg_catalog.int4], pg_catalog.count(*)
                 FROM (SELECT ctid, id::pg_catalog.uuid, ",
                $ended,
                "::pg_catalog.timestamptz AS ended FROM ONLY {schema}.outbox_event WHERE ",
                $ended,
                " IS NOT NULL AND status::pg_catalog.text OPERATOR(pg_catalog.=) '",
                $status,
                "' AND (",
                $ended,
                ", id) OPERATOR(pg_catalog.>=) ($1, $2) AND (",
                $ended,
                ", id) OPERATOR(pg_catalog.<=) ($3, $4)
                 ORDER BY ",
                $ended,
                ", id LIMIT $5 FOR UPDATE SKIP LOCKED) AS found"
            ),
            parameters: &[TIMESTAMPTZOID, UUIDOID, TIMESTAMPTZOID, UUIDOID, INT8OID],
            seeks: true,
        }
    };
}

// The position of the last one found is that of the latest end and of the last id, since they come in order.
static FIND_COMPLETED: Statement = find!("completed", "completed_at");
static FIND_DEAD: Statement = find!("dead", "dead_at");

// The rows are locked, so nobody can have moved them since they were found.
static DELETE: Statement = Statement {
    sql: "DELETE FROM ONLY {schema}.outbox_event WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)",
    parameters: &[TIDARRAYOID],
    seeks: true,
};
