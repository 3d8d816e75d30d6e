//! The extension's functions as a client calls them.

use postgres::{GenericClient, Row, ToStatement};
use uuid::Uuid;

/// The payload and the headers travel as text and become jsonb on the server.
pub const ENQUEUE: &str = "\
SELECT outbox_enqueue(
    tenant_id         => $1,
    aggregate_type    => $2,
    aggregate_id      => $3,
    event_type        => $4,
    deduplication_key => $5,
    payload           => $6::text::jsonb,
    available_at      => $7::text::timestamptz,
    headers           => $8::text::jsonb)";

/// In FROM and alone: all that the function leases it has leased, whatever is then thrown away.
pub const CLAIM: &str = "\
SELECT id, event_type, attempt_count, payload::text
  FROM outbox_claim_batch($1, $2, lock_timeout => $3::text::interval, max_attempts => $4)";

pub const COMPLETE: &str = "SELECT outbox_complete($1, $2, attempt => $3)";

const FAIL: &str = "\
SELECT outbox_fail($1, $2, $3, max_attempts => $4, next_attempt => clock_timestamp() + $5::text::interval)";

pub struct NewEvent<'a> {
    pub tenant_id: Option<Uuid>,
    pub aggregate_type: &'a str,
    pub aggregate_id: Uuid,
    pub event_type: &'a str,
    pub deduplication_key: Option<&'a str>,
    pub payload: &'a str,
    pub available_at: Option<&'a str>,
    pub headers: Option<&'a str>,
}

pub fn enqueue<S>(
    client: &mut impl GenericClient,
    statement: &S,
    event: &NewEvent<'_>,
) -> Result<Uuid, postgres::Error>
where
    S: ?Sized + ToStatement,
{
    client
        .query_one(
            statement,
            &[
                &event.tenant_id,
                &event.aggregate_type,
                &event.aggregate_id,
                &event.event_type,
                &event.deduplication_key,
                &event.payload,
                &event.available_at,
                &event.headers,
            ],
        )?
        .try_get(0)
}

/// What a worker asks for.
#[derive(Clone, Copy)]
pub struct Claim {
    pub batch_size: i32,
    pub lease: &'static str,
    pub max_attempts: Option<i32>,
}

impl Claim {
    /// One event, under a lease of the default length.
    pub const ONE: Self = Self { batch_size: 1, lease: "5 minutes", max_attempts: None };
}

#[derive(Debug)]
pub struct Claimed {
    pub id: Uuid,
    pub event_type: String,
    pub attempt: i32,
    pub payload: String,
}

impl Claimed {
    fn from_row(row: &Row) -> Result<Self, postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            event_type: row.try_get(1)?,
            attempt: row.try_get(2)?,
            payload: row.try_get(3)?,
        })
    }
}

pub fn claim<S>(
    client: &mut impl GenericClient,
    statement: &S,
    worker: &str,
    wanted: Claim,
) -> Result<Vec<Claimed>, postgres::Error>
where
    S: ?Sized + ToStatement,
{
    client
        .query(statement, &[&worker, &wanted.batch_size, &wanted.lease, &wanted.max_attempts])?
        .iter()
        .map(Claimed::from_row)
        .collect()
}

pub fn complete<S>(
    client: &mut impl GenericClient,
    statement: &S,
    id: Uuid,
    worker: &str,
    attempt: Option<i32>,
) -> Result<(), postgres::Error>
where
    S: ?Sized + ToStatement,
{
    client.execute(statement, &[&id, &worker, &attempt])?;
    Ok(())
}

/// How an event failed. `None` leaves the choice to the extension.
pub struct Failure<'a> {
    pub error_code: &'a str,
    pub max_attempts: Option<i32>,
    pub retry_in: Option<&'a str>,
}

/// Returns the event's new status.
pub fn fail(
    client: &mut impl GenericClient,
    id: Uuid,
    worker: &str,
    failure: &Failure<'_>,
) -> Result<String, postgres::Error> {
    client
        .query_one(FAIL, &[&id, &worker, &failure.error_code, &failure.max_attempts, &failure.retry_in])?
        .try_get(0)
}
