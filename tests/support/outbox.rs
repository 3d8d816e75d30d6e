//! The four functions, as tests call them.

use crate::refusal::Refusal;
use crate::sql::Sql;
use postgres::{Client, Error, Row};
use uuid::Uuid;

/// An event to enqueue. The defaults make one that is accepted.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    pub tenant: Option<Uuid>,
    pub aggregate_type: &'a str,
    pub aggregate: Uuid,
    pub event_type: &'a str,
    pub key: Option<&'a str>,
    /// JSON text.
    pub payload: &'a str,
    /// A timestamp as SQL text.
    pub available_at: Option<&'a str>,
    /// JSON text.
    pub headers: Option<&'a str>,
}

impl Default for Event<'_> {
    fn default() -> Self {
        Self {
            tenant: None,
            aggregate_type: "order",
            aggregate: Uuid::from_u128(1),
            event_type: "order.created",
            key: None,
            payload: r#"{"total": 12.50}"#,
            available_at: None,
            headers: None,
        }
    }
}

impl<'a> Event<'a> {
    /// One with a deduplication key.
    pub fn keyed(key: &'a str) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// One with a payload of its own.
    pub fn carrying(payload: &'a str) -> Self {
        Self { payload, ..Self::default() }
    }
}

/// A claimed event.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    pub id: Uuid,
    pub attempt: i32,
    /// JSON text, as the server writes it.
    pub payload: String,
}

impl Claimed {
    fn read(row: &Row) -> Self {
        Self { id: row.get("id"), attempt: row.get("attempt_count"), payload: row.get("payload") }
    }
}

/// A lock_timeout under which every lease that another call took has expired.
pub const EXPIRED: &str = "1 microsecond";

const LONG: &str = "1 hour";

const ENQUEUE: &str = "SELECT outbox_enqueue($1, $2, $3, $4, $5, $6::text::jsonb, $7::text::timestamptz,
                                             $8::text::jsonb)";

pub trait Outbox {
    fn try_enqueue(&mut self, event: &Event) -> Result<Uuid, Error>;

    fn try_claim(&mut self, worker: &str, batch_size: i32, lock_timeout: &str)
    -> Result<Vec<Claimed>, Error>;

    fn try_claim_in_order(&mut self, worker: &str, batch_size: i32) -> Result<Vec<Claimed>, Error>;

    fn try_complete(&mut self, event: Uuid, worker: &str, attempt: Option<i32>) -> Result<(), Error>;

    /// The new status.
    fn try_fail(&mut self, event: Uuid, worker: &str, max_attempts: Option<i32>) -> Result<String, Error>;

    fn enqueue(&mut self, event: &Event) -> Uuid {
        self.try_enqueue(event).unwrap_or_else(|error| panic!("{event:?}: {error:?}"))
    }

    /// Enqueues that many events, each with its number as its payload.
    fn enqueue_many(&mut self, count: i32);

    /// Claims what is due; no lease expires.
    fn claim(&mut self, worker: &str, batch_size: i32) -> Vec<Claimed> {
        self.claim_within(worker, batch_size, LONG)
    }

    fn claim_within(&mut self, worker: &str, batch_size: i32, lock_timeout: &str) -> Vec<Claimed> {
        self.try_claim(worker, batch_size, lock_timeout).unwrap_or_else(|error| panic!("claim: {error:?}"))
    }

    /// Claims, in the order of the aggregates, what is due; no lease expires.
    fn claim_in_order(&mut self, worker: &str, batch_size: i32) -> Vec<Claimed> {
        self.try_claim_in_order(worker, batch_size).unwrap_or_else(|error| panic!("claim: {error:?}"))
    }

    /// Claims one event, which must be there.
    fn claim_one(&mut self, worker: &str) -> Claimed {
        let claimed = self.claim(worker, 1);
        claimed.into_iter().next().expect("an event is due")
    }

    fn complete(&mut self, event: Uuid, worker: &str) {
        self.try_complete(event, worker, None).unwrap_or_else(|error| panic!("complete {event}: {error:?}"));
    }

    fn refused_complete(&mut self, event: Uuid, worker: &str, attempt: Option<i32>) -> Refusal {
        Refusal::expect(self.try_complete(event, worker, attempt), "complete")
    }

    /// Fails it; the new status.
    fn fail(&mut self, event: Uuid, worker: &str, max_attempts: i32) -> String {
        self.try_fail(event, worker, Some(max_attempts))
            .unwrap_or_else(|error| panic!("fail {event}: {error:?}"))
    }

    /// The whole row as text.
    fn row(&mut self, event: Uuid) -> String;

    fn status(&mut self, event: Uuid) -> String;

    fn attempts(&mut self, event: Uuid) -> i32;

    /// How many events there are in a status.
    fn count(&mut self, status: &str) -> i64;
}

impl Outbox for Client {
    fn try_enqueue(&mut self, event: &Event) -> Result<Uuid, Error> {
        let row = self.query_one(
            ENQUEUE,
            &[
                &event.tenant,
                &event.aggregate_type,
                &event.aggregate,
                &event.event_type,
                &event.key,
                &event.payload,
                &event.available_at,
                &event.headers,
            ],
        )?;
        Ok(row.get(0))
    }

    fn try_claim(
        &mut self,
        worker: &str,
        batch_size: i32,
        lock_timeout: &str,
    ) -> Result<Vec<Claimed>, Error> {
        let rows = self.query(
            "SELECT id, attempt_count, payload::text
             FROM outbox_claim_batch($1, $2, $3::text::interval)",
            &[&worker, &batch_size, &lock_timeout],
        )?;
        Ok(rows.iter().map(Claimed::read).collect())
    }

    fn try_claim_in_order(&mut self, worker: &str, batch_size: i32) -> Result<Vec<Claimed>, Error> {
        let rows = self.query(
            "SELECT id, attempt_count, payload::text
             FROM outbox_claim_batch($1, $2, $3::text::interval, ordered => true)",
            &[&worker, &batch_size, &LONG],
        )?;
        Ok(rows.iter().map(Claimed::read).collect())
    }

    fn try_complete(&mut self, event: Uuid, worker: &str, attempt: Option<i32>) -> Result<(), Error> {
        self.execute("SELECT outbox_complete($1, $2, $3)", &[&event, &worker, &attempt])?;
        Ok(())
    }

    fn try_fail(&mut self, event: Uuid, worker: &str, max_attempts: Option<i32>) -> Result<String, Error> {
        let row = self.query_one(
            "SELECT outbox_fail($1, $2, 'test_failure', $3, next_attempt => clock_timestamp())",
            &[&event, &worker, &max_attempts],
        )?;
        Ok(row.get(0))
    }

    fn enqueue_many(&mut self, count: i32) {
        self.execute(
            "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, to_jsonb(n))
             FROM generate_series(1, $1::integer) AS n",
            &[&count],
        )
        .unwrap_or_else(|error| panic!("enqueue {count} events: {error:?}"));
    }

    fn row(&mut self, event: Uuid) -> String {
        self.value("SELECT event::text FROM outbox_event AS event WHERE id = $1", &[&event])
    }

    fn status(&mut self, event: Uuid) -> String {
        self.value("SELECT status::text FROM outbox_event WHERE id = $1", &[&event])
    }

    fn attempts(&mut self, event: Uuid) -> i32 {
        self.value("SELECT attempt_count FROM outbox_event WHERE id = $1", &[&event])
    }

    fn count(&mut self, status: &str) -> i64 {
        self.value("SELECT count(*) FROM outbox_event WHERE status = $1::text", &[&status])
    }
}

/// The ids of claimed events.
pub fn ids(claimed: &[Claimed]) -> Vec<Uuid> {
    claimed.iter().map(|event| event.id).collect()
}
