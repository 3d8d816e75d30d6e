//! Enqueueing: one pending event, in the caller's transaction; or the event that its key already has.

use crate::argument;
use crate::clock;
use crate::datum::{Payload, Text};
use crate::error::{Differs, ErrorReport, HeldBy, OutboxError};
use crate::event_id;
use crate::instant::Instant;
use crate::payload_hash;
use crate::plans::{Row, Session, Statement, moment, uuid};
use crate::queue;
use pgrx::pg_sys::{self, JSONBOID, TEXTOID, TIMESTAMPTZOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{IntoDatum, Uuid};

/// Adds an event to the outbox, in the caller's transaction.
///
/// With a `deduplication_key` that an event of the same tenant and event type already has, nothing is
/// added: the id of that event comes back, whatever its status, if payload and aggregate are equal.
///
/// * `aggregate_type`, `event_type`: 1 to 255 bytes; `deduplication_key`: 1 to 1024 bytes.
/// * `available_at`: when it may be claimed; NULL means now.
/// * `headers`: an object, handed to the worker and no part of the payload hash.
///
/// # Errors
/// `22004` a required argument is NULL; `22023` an argument out of range; `54000` the payload is larger than
/// `outbox.max_payload_bytes` allows; `23505` the key was used with
/// another payload or aggregate; `42501` the key's event is hidden by row-level security; `40001` the key
/// was lost to a concurrent transaction; `09000` a trigger suppressed the event.
#[pg_extern(volatile, parallel_unsafe)]
#[allow(clippy::too_many_arguments, reason = "one parameter for each of the SQL function's")]
fn outbox_enqueue(
    tenant_id: default!(Option<Uuid>, "NULL"),
    aggregate_type: default!(Option<Text<'_>>, "NULL"),
    aggregate_id: default!(Option<Uuid>, "NULL"),
    event_type: default!(Option<Text<'_>>, "NULL"),
    deduplication_key: default!(Option<Text<'_>>, "NULL"),
    payload: default!(Option<Payload<'_>>, "NULL"),
    available_at: default!(Option<Instant>, "NULL"),
    headers: default!(Option<Payload<'_>>, "NULL"),
    call: pg_sys::FunctionCallInfo,
) -> Result<Uuid, ErrorReport> {
    let arguments = Arguments {
        tenant_id,
        aggregate_type,
        aggregate_id,
        event_type,
        deduplication_key,
        payload,
        available_at,
        headers,
    };
    Ok(enqueue(&Session::open(call)?, &arguments.event()?)?)
}

/// What a producer says of an event.
#[derive(Default)]
pub struct Arguments<'a> {
    pub tenant_id: Option<Uuid>,
    pub aggregate_type: Option<Text<'a>>,
    pub aggregate_id: Option<Uuid>,
    pub event_type: Option<Text<'a>>,
    pub deduplication_key: Option<Text<'a>>,
    pub payload: Option<Payload<'a>>,
    pub available_at: Option<Instant>,
    pub headers: Option<Payload<'a>>,
}

impl<'a> Arguments<'a> {
    /// The event, if all is in order.
    pub fn event(self) -> Result<NewEvent<'a>, OutboxError> {
        Ok(NewEvent {
            tenant_id: argument::tenant("tenant_id", self.tenant_id)?,
            aggregate_type: argument::name("aggregate_type", self.aggregate_type)?,
            aggregate_id: argument::required("aggregate_id", self.aggregate_id)?,
            event_type: argument::name("event_type", self.event_type)?,
            deduplication_key: argument::key(self.deduplication_key)?,
            payload: argument::required("payload", self.payload)?,
            available_at: argument::finite("available_at", self.available_at)?,
            headers: argument::object("headers", self.headers)?,
        })
    }
}

/// An event whose arguments are in order.
pub struct NewEvent<'a> {
    pub tenant_id: Option<Uuid>,
    pub aggregate_type: Text<'a>,
    pub aggregate_id: Uuid,
    pub event_type: Text<'a>,
    pub deduplication_key: Option<Text<'a>>,
    pub payload: Payload<'a>,
    pub available_at: Option<Instant>,
    pub headers: Option<Payload<'a>>,
}

/// Stores it; the id, or that of the event which has its key.
pub fn enqueue(session: &Session, event: &NewEvent) -> Result<Uuid, OutboxError> {
    let hash = payload_hash::of(&event.payload)?;
    match &event.deduplication_key {
        None => insert(session, &INSERT, event, &hash)?.ok_or(OutboxError::InsertSuppressed),
        Some(key) => enqueue_once(session, event, key, &hash),
    }
}

/// How often a key that is taken but whose event is not found is tried again: the event may have been
/// deleted in between.
pub const ROUNDS: usize = 10;

fn enqueue_once(session: &Session, event: &NewEvent, key: &Text, hash: &str) -> Result<Uuid, OutboxError> {
    for _ in 0..ROUNDS {
        if let Some(id) = insert(session, &INSERT_ONCE, event, hash)? {
            return Ok(id);
        }
        if let Some(holder) = holder(session, event, key, hash)? {
            return holder.answer();
        }
    }
    Err(neither_inserted_nor_found(session)?)
}

/// Why, after all rounds, a key can be neither taken nor found.
pub fn neither_inserted_nor_found(session: &Session) -> Result<OutboxError, OutboxError> {
    Ok(if queue::is_hidden(session.table()) {
        OutboxError::KeyHidden
    } else if session.run(&FIND_SUPPRESSOR, [Some(pg_sys::Datum::from(session.table()))])?.count() > 0 {
        OutboxError::InsertSuppressed
    } else {
        OutboxError::KeyLost
    })
}

/// A trigger of the user's that may drop an event before it is stored: BEFORE, ROW and INSERT are the bits
/// 2, 1 and 4 of tgtype.
static FIND_SUPPRESSOR: Statement = Statement {
    sql: "SELECT FROM pg_catalog.pg_trigger
          WHERE tgrelid OPERATOR(pg_catalog.=) $1
            AND tgname OPERATOR(pg_catalog.<>) 'zz_outbox_event_guard'
            AND tgtype OPERATOR(pg_catalog.&) 7::pg_catalog.int2 OPERATOR(pg_catalog.=) 7::pg_catalog.int2
            AND tgenabled OPERATOR(pg_catalog.<>) 'D'",
    parameters: &[pg_sys::OIDOID],
    seeks: true,
};

macro_rules! insert {
    ($on_conflict:literal) => {
        Statement {
            sql: concat!(
                "INSERT INTO {schema}.outbox_event (id, tenant_id, aggregate_type, aggregate_id, event_type,
                     deduplication_key, payload, headers, payload_hash, available_at, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)",
                $on_conflict
            ),
            parameters: &[
                UUIDOID,
                UUIDOID,
                TEXTOID,
                UUIDOID,
                TEXTOID,
                TEXTOID,
                JSONBOID,
                JSONBOID,
                TEXTOID,
                TIMESTAMPTZOID,
                TIMESTAMPTZOID,
            ],
            seeks: false,
        }
    };
}

static INSERT: Statement = insert!("");

static INSERT_ONCE: Statement = insert!(
    " ON CONFLICT (tenant_id, event_type, deduplication_key) WHERE deduplication_key IS NOT NULL DO NOTHING"
);

/// Inserts the event; none when its key is taken (or a trigger suppressed it).
fn insert(
    session: &Session,
    statement: &'static Statement,
    event: &NewEvent,
    hash: &str,
) -> Result<Option<Uuid>, OutboxError> {
    let id = event_id::next();
    let now = clock::now();
    let inserted = session.run(
        statement,
        [
            Some(uuid(&id)),
            event.tenant_id.as_ref().map(uuid),
            Some(event.aggregate_type.datum()),
            Some(uuid(&event.aggregate_id)),
            Some(event.event_type.datum()),
            event.deduplication_key.map(|key| key.datum()),
            Some(event.payload.datum()),
            event.headers.map(|headers| headers.datum()),
            hash.into_datum(),
            Some(moment(event.available_at.unwrap_or(now))),
            Some(moment(now)),
        ],
    )?;
    Ok((inserted.count() == 1).then_some(id))
}

/// The event that has a key already.
pub struct KeyHolder {
    id: Uuid,
    differs: Option<Differs>,
}

impl KeyHolder {
    /// Reads id, payload_hash, aggregate_type and aggregate_id, which are the row's first columns, beside the
    /// event that wants the key.
    pub fn read(row: &Row, event: &NewEvent, hash: &[u8]) -> Option<Self> {
        let same_payload = row.get::<Text>(2)?.bytes() == hash;
        let same_aggregate = row.get::<Text>(3)?.bytes() == event.aggregate_type.bytes()
            && row.get::<Uuid>(4)? == event.aggregate_id;
        Some(Self { id: row.get(1)?, differs: Differs::in_any(same_payload, same_aggregate) })
    }

    /// Its id, if the event that wanted the key is the same one.
    pub fn answer(self) -> Result<Uuid, OutboxError> {
        match self.differs {
            None => Ok(self.id),
            Some(differs) => Err(OutboxError::KeyConflict { holder: HeldBy::Event(self.id), differs }),
        }
    }
}

macro_rules! find {
    ($tenant:literal $(, $tenant_type:expr)?) => {
        Statement {
            sql: concat!(
                "SELECT id::pg_catalog.uuid, payload_hash::pg_catalog.text, aggregate_type::pg_catalog.text,
                        aggregate_id::pg_catalog.uuid
                 FROM ONLY {schema}.outbox_event
                 WHERE event_type::pg_catalog.text OPERATOR(pg_catalog.=) $1
                   AND deduplication_key::pg_catalog.text OPERATOR(pg_catalog.=) $2
                   AND tenant_id ",
                $tenant
            ),
            parameters: &[TEXTOID, TEXTOID $(, $tenant_type)?],
            seeks: true,
        }
    };
}

// Two statements, since IS NOT DISTINCT FROM cannot seek in an index.
static FIND_OF_TENANT: Statement = find!("OPERATOR(pg_catalog.=) $3", UUIDOID);
static FIND_OF_NO_TENANT: Statement = find!("IS NULL");

/// Looks for the event that has the key. No lock is taken on it: a producer must not wait for a worker.
fn holder(
    session: &Session,
    event: &NewEvent,
    key: &Text,
    hash: &str,
) -> Result<Option<KeyHolder>, OutboxError> {
    let (event_type, key) = (Some(event.event_type.datum()), Some(key.datum()));
    let found = match &event.tenant_id {
        Some(tenant) => session.run(&FIND_OF_TENANT, [event_type, key, Some(uuid(tenant))])?,
        None => session.run(&FIND_OF_NO_TENANT, [event_type, key])?,
    };
    Ok(found.first().and_then(|row| KeyHolder::read(&row, event, hash.as_bytes())))
}
