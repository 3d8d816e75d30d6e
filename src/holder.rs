//! Who says that it holds which lease: one event's, or those of a whole batch.

use crate::argument;
use crate::array;
use crate::datum::Text;
use crate::encoding;
use crate::error::OutboxError;
use crate::lease::Lease;
use crate::plans::{Row, Value, uuid};
use crate::status::Status;
use pgrx::{Array, IntoDatum, Uuid, pg_sys};

/// A worker that settles one event.
pub struct Holder<'a> {
    pub event: Uuid,
    pub worker: Text<'a>,
    pub attempt: Option<i32>,
}

impl<'a> Holder<'a> {
    pub fn new(
        event: Option<Uuid>,
        worker: Option<Text<'a>>,
        attempt: Option<i32>,
    ) -> Result<Self, OutboxError> {
        Ok(Self {
            event: argument::required("event_id", event)?,
            worker: argument::name("worker_id", worker)?,
            attempt,
        })
    }

    /// Whether the row says so too. `row` starts with status, locked_by and attempt_count.
    pub fn judge(&self, row: Option<Row>) -> Result<(), OutboxError> {
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

/// A worker that settles many events at once. Those whose lease it does not hold are left alone: a lost lease
/// costs one event and not the batch.
pub struct Holders<'a> {
    worker: Text<'a>,
    /// In the order of the ids, which is how `of_event!` finds an event's attempt. Of an event that is named more than
    /// once the last one counts: without an attempt, or with the latest.
    events: Vec<(Uuid, Option<i32>)>,
}

impl<'a> Holders<'a> {
    /// `22004` for NULL, also as an event id; `22023` for arrays of different lengths.
    pub fn new(
        events: Option<Array<Uuid>>,
        worker: Option<Text<'a>>,
        attempts: Option<Array<i32>>,
    ) -> Result<Self, OutboxError> {
        let events = argument::elements("event_ids", events.as_ref())?;
        let worker = argument::name("worker_id", worker)?;
        let attempts = match attempts {
            Some(attempts) if attempts.len() != events.len() => {
                let found = format!("{} elements long, event_ids {}", attempts.len(), events.len());
                return argument::invalid("attempts", found, "Pass one attempt for each event id, or NULL.");
            }
            Some(attempts) => attempts.iter().collect(),
            None => vec![None; events.len()],
        };
        let mut events: Vec<_> = events.into_iter().zip(attempts).collect();
        events.sort_unstable_by_key(|(event, attempt)| (*event.as_bytes(), attempt.is_none(), *attempt));
        Ok(Self { worker, events })
    }

    /// The parameters that `held!` reads: the ids, their attempts, and the worker.
    pub fn values(&self) -> [Value; 3] {
        let ids = self.events.iter().map(|(event, _)| Some(uuid(event)));
        let attempts = self.events.iter().map(|(_, attempt)| attempt.into_datum());
        [
            Some(array::of(pg_sys::UUIDOID, ids)),
            Some(array::of(pg_sys::INT4OID, attempts)),
            Some(self.worker.datum()),
        ]
    }
}

/// The element of an array that belongs to `event`, where parameter 1 has the events' ids in ascending order. Of an
/// id that is there more than once it is the last one's.
macro_rules! of_event {
    ($array:literal) => {
        concat!("(", $array, ")[pg_catalog.width_bucket(event.id, $1)]")
    };
}

/// The condition that the worker holds the lease of `event`, one of the events of `Holders::values`: parameters 1 to 3.
///
/// Not a join with the arrays: one that is planned while the table is small reads all events on its way to these, and
/// goes on doing so when the table has grown.
macro_rules! held {
    () => {
        concat!(
            " WHERE event.id OPERATOR(pg_catalog.=) ANY ($1)
                AND event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'processing'
                AND event.locked_by OPERATOR(pg_catalog.=) $3
                AND (",
            $crate::holder::of_event!("$2"),
            " IS NULL OR event.attempt_count OPERATOR(pg_catalog.=) ",
            $crate::holder::of_event!("$2"),
            ")"
        )
    };
}
pub(crate) use {held, of_event};
