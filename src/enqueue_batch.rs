//! Enqueueing many events in one call: the array is read and checked as a whole, then a statement inserts all
//! events at once, and another finds those whose keys were taken.

use crate::argument;
use crate::array;
use crate::clock;
use crate::datum::{Payload, Text};
use crate::enqueue::{self, KeyHolder, NewEvent, ROUNDS};
use crate::error::{Differs, ErrorReport, HeldBy, OutboxError};
use crate::event_id;
use crate::event_object::{self, damaged};
use crate::instant::Instant;
use crate::payload_hash;
use crate::payload_hash::stored::{Container, Value};
use crate::plans::{Rows, Session, Statement, moment, uuid};
use crate::result_set::ResultSet;
use pgrx::pg_sys::{
    self, JSONBARRAYOID, JSONBOID, TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, UUIDARRAYOID,
    UUIDOID,
};
use pgrx::prelude::*;
use pgrx::{IntoDatum, Uuid};
use std::collections::{HashMap, HashSet};

/// Adds many events to the outbox, in the caller's transaction: all of them or, after an error, none.
///
/// `events` is a JSON array of objects whose keys are the parameters of `outbox_enqueue`, with the rules
/// they have there. JSON null is a payload, and SQL NULL under every other key. Texts, uuids and timestamps
/// are JSON strings.
///
/// There is a row for each element, in their order: `ordinal` counts from 1; `deduplicated` says that the
/// id is an earlier event's, of this array or of before. Ids increase with the ordinal.
///
/// # Errors
/// As `outbox_enqueue`, DETAIL names the element; `22023` also for what is no array, for an element that is
/// no object or has an unknown key, and for a value of another kind.
#[pg_extern(sql = r#"
CREATE FUNCTION outbox_enqueue_batch(events jsonb) RETURNS TABLE (ordinal integer, id uuid, deduplicated boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1000
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#)]
fn outbox_enqueue_batch(
    events: Option<Payload<'_>>,
    call: pg_sys::FunctionCallInfo,
) -> Result<(), ErrorReport> {
    let events = argument::required("events", events)?;
    let mut result = ResultSet::begin(call);
    let session = Session::open(call)?;
    let stored = events.detoast();
    let mut batch = Batch::read(stored.container())?;
    batch.enqueue(&session)?;
    for (ordinal, answer) in (1..).zip(batch.answers()) {
        let ordinal: i32 = ordinal;
        let values = [ordinal.into_datum(), Some(uuid(&answer.id)), answer.deduplicated.into_datum()];
        result.push(values.into_iter());
    }
    Ok(())
}

/// The elements of the array, in order.
struct Batch<'a> {
    elements: Vec<Element<'a>>,
}

struct Element<'a> {
    event: NewEvent<'a>,
    hash: Text<'a>,
    answer: Answer,
    /// The index of the earlier element that has its key.
    repeats: Option<usize>,
}

#[derive(Clone, Copy)]
struct Answer {
    id: Uuid,
    deduplicated: bool,
}

/// What is unique.
type Key<'a> = (Option<[u8; 16]>, &'a [u8], &'a [u8]);

impl<'a> Element<'a> {
    fn read(value: Value<'a>) -> Result<Self, OutboxError> {
        let event = event_object::read(value)?.event()?;
        let hash = Text::of(payload_hash::of(&event.payload)?.as_bytes());
        let answer = Answer { id: event_id::next(), deduplicated: false };
        Ok(Self { event, hash, answer, repeats: None })
    }

    fn key(&self) -> Option<Key<'a>> {
        let tenant = self.event.tenant_id.map(|tenant| *tenant.as_bytes());
        Some((tenant, self.event.event_type.bytes(), self.event.deduplication_key?.bytes()))
    }

    /// In what it differs from an earlier element with its key.
    fn differs(&self, earlier: &Self) -> Option<Differs> {
        let same_aggregate = self.event.aggregate_type.bytes() == earlier.event.aggregate_type.bytes()
            && self.event.aggregate_id == earlier.event.aggregate_id;
        Differs::in_any(self.hash.bytes() == earlier.hash.bytes(), same_aggregate)
    }
}

impl<'a> Batch<'a> {
    fn read(events: &'a [u8]) -> Result<Self, OutboxError> {
        let events = match Container::new(events).and_then(Container::root).map_err(damaged)? {
            Value::Container(events) if !events.is_object() => events,
            _ => return argument::invalid("events", "no JSON array", "Pass a JSON array of objects."),
        };
        let mut elements: Vec<Element> = Vec::new();
        let mut keys: HashMap<Key, usize> = HashMap::new();
        for (index, value) in events.elements().map_err(damaged)?.enumerate() {
            pg_sys::check_for_interrupts!();
            let mut element = value
                .map_err(damaged)
                .and_then(Element::read)
                .map_err(|error| error.in_element(index + 1))?;
            if let Some(key) = element.key() {
                let first = *keys.entry(key).or_insert(index);
                if first < index {
                    if let Some(differs) = element.differs(&elements[first]) {
                        let holder = HeldBy::Element(first + 1);
                        return Err(OutboxError::KeyConflict { holder, differs }.in_element(index + 1));
                    }
                    element.repeats = Some(first);
                }
            }
            elements.push(element);
        }
        Ok(Self { elements })
    }

    /// Stores the events, and learns the answers for those that have a key.
    fn enqueue(&mut self, session: &Session) -> Result<(), OutboxError> {
        let now = clock::now();
        let own = (0..self.elements.len()).filter(|&index| self.elements[index].repeats.is_none());
        let (mut keyed, free): (Vec<_>, Vec<_>) =
            own.partition(|&index| self.elements[index].event.deduplication_key.is_some());
        if !free.is_empty() && self.insert(session, &INSERT, &free, now)?.count() < free.len() as u64 {
            return Err(OutboxError::InsertSuppressed);
        }
        // In the order of the keys: two batches that have keys in common wait for each other, and do not lock
        // each other out.
        keyed.sort_unstable_by_key(|&index| self.elements[index].key());
        self.enqueue_once(session, keyed, now)
    }

    /// Inserts the elements whose keys are free, and finds the events that have the other keys.
    fn enqueue_once(
        &mut self,
        session: &Session,
        mut open: Vec<usize>,
        now: Instant,
    ) -> Result<(), OutboxError> {
        for _ in 0..ROUNDS {
            if open.is_empty() {
                return Ok(());
            }
            let inserted = self.insert(session, &INSERT_ONCE, &open, now)?;
            if inserted.count() == open.len() as u64 {
                return Ok(());
            }
            let inserted: HashSet<Uuid> = inserted.iter().filter_map(|row| row.get(1)).collect();
            open.retain(|&index| !inserted.contains(&self.elements[index].answer.id));
            self.find(session, &open)?;
            open.retain(|&index| !self.elements[index].answer.deduplicated);
        }
        match open.first() {
            Some(&index) => Err(enqueue::neither_inserted_nor_found(session)?.in_element(index + 1)),
            None => Ok(()),
        }
    }

    fn insert<'s>(
        &self,
        session: &'s Session,
        statement: &'static Statement,
        elements: &[usize],
        now: Instant,
    ) -> Result<Rows<'s>, OutboxError> {
        let elements = || elements.iter().map(|&index| &self.elements[index]);
        let events = || elements().map(|element| &element.event);
        session.run(
            statement,
            [
                Some(array::of(UUIDOID, elements().map(|element| Some(uuid(&element.answer.id))))),
                Some(array::of(UUIDOID, events().map(|event| event.tenant_id.as_ref().map(uuid)))),
                Some(array::of(TEXTOID, events().map(|event| Some(event.aggregate_type.datum())))),
                Some(array::of(UUIDOID, events().map(|event| Some(uuid(&event.aggregate_id))))),
                Some(array::of(TEXTOID, events().map(|event| Some(event.event_type.datum())))),
                Some(array::of(
                    TEXTOID,
                    events().map(|event| event.deduplication_key.map(|key| key.datum())),
                )),
                Some(array::of(JSONBOID, events().map(|event| Some(event.payload.datum())))),
                Some(array::of(JSONBOID, events().map(|event| event.headers.map(|headers| headers.datum())))),
                Some(array::of(TEXTOID, elements().map(|element| Some(element.hash.datum())))),
                Some(array::of(
                    TIMESTAMPTZOID,
                    events().map(|event| Some(moment(event.available_at.unwrap_or(now)))),
                )),
                Some(moment(now)),
            ],
        )
    }

    /// Looks for the events that have the keys of these elements. No lock is taken on them: a producer must
    /// not wait for a worker.
    fn find(&mut self, session: &Session, elements: &[usize]) -> Result<(), OutboxError> {
        let (of_tenants, of_none): (Vec<_>, Vec<_>) =
            elements.iter().copied().partition(|&index| self.elements[index].event.tenant_id.is_some());
        if !of_tenants.is_empty() {
            let tenants =
                of_tenants.iter().map(|&index| self.elements[index].event.tenant_id.as_ref().map(uuid));
            let (types, keys) = self.types_and_keys(&of_tenants);
            let found = session.run(&FIND_OF_TENANTS, [types, keys, Some(array::of(UUIDOID, tenants))])?;
            self.take_answers(&of_tenants, &found)?;
        }
        if !of_none.is_empty() {
            let (types, keys) = self.types_and_keys(&of_none);
            self.take_answers(&of_none, &session.run(&FIND_OF_NO_TENANT, [types, keys])?)?;
        }
        Ok(())
    }

    fn types_and_keys(&self, elements: &[usize]) -> (crate::plans::Value, crate::plans::Value) {
        let events = || elements.iter().map(|&index| &self.elements[index].event);
        let types = events().map(|event| Some(event.event_type.datum()));
        let keys = events().map(|event| event.deduplication_key.map(|key| key.datum()));
        (Some(array::of(TEXTOID, types)), Some(array::of(TEXTOID, keys)))
    }

    /// The fifth column of what was found says for which of the elements.
    fn take_answers(&mut self, elements: &[usize], found: &Rows) -> Result<(), OutboxError> {
        for row in found.iter() {
            let position = row.get::<i64>(5).and_then(|position| usize::try_from(position - 1).ok());
            let Some(&index) = position.and_then(|position| elements.get(position)) else { continue };
            let element = &mut self.elements[index];
            if let Some(holder) = KeyHolder::read(&row, &element.event, element.hash.bytes()) {
                let id = holder.answer().map_err(|error| error.in_element(index + 1))?;
                element.answer = Answer { id, deduplicated: true };
            }
        }
        Ok(())
    }

    fn answers(&self) -> impl Iterator<Item = Answer> {
        self.elements.iter().map(|element| match element.repeats {
            Some(first) => Answer { deduplicated: true, ..self.elements[first].answer },
            None => element.answer,
        })
    }
}

macro_rules! insert {
    ($on_conflict:literal) => {
        Statement {
            sql: concat!(
                "INSERT INTO {schema}.outbox_event (id, tenant_id, aggregate_type, aggregate_id, event_type,
                     deduplication_key, payload, headers, payload_hash, available_at, created_at, updated_at)
                 SELECT pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4),
                        pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7), pg_catalog.unnest($8),
                        pg_catalog.unnest($9), pg_catalog.unnest($10), $11, $11",
                $on_conflict
            ),
            parameters: &[
                UUIDARRAYOID,
                UUIDARRAYOID,
                TEXTARRAYOID,
                UUIDARRAYOID,
                TEXTARRAYOID,
                TEXTARRAYOID,
                JSONBARRAYOID,
                JSONBARRAYOID,
                TEXTARRAYOID,
                TIMESTAMPTZARRAYOID,
                TIMESTAMPTZOID,
            ],
            seeks: false,
        }
    };
}

// Where no row has a key, ON CONFLICT would still cost each a second record of WAL.
static INSERT: Statement = insert!("");

static INSERT_ONCE: Statement = insert!(
    " ON CONFLICT (tenant_id, event_type, deduplication_key) WHERE deduplication_key IS NOT NULL DO NOTHING
      RETURNING id::pg_catalog.uuid"
);

macro_rules! find {
    ($tenants:literal, $columns:literal, $tenant:literal $(, $tenant_type:expr)?) => {
        Statement {
            sql: concat!(
                "SELECT held.*, wanted.position
                 FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)", $tenants, ")
                      WITH ORDINALITY AS wanted (event_type, deduplication_key", $columns, ", position)
                 CROSS JOIN LATERAL (
                     SELECT id::pg_catalog.uuid, payload_hash::pg_catalog.text, aggregate_type::pg_catalog.text,
                            aggregate_id::pg_catalog.uuid
                     FROM ONLY {schema}.outbox_event
                     WHERE event_type::pg_catalog.text OPERATOR(pg_catalog.=) wanted.event_type
                       AND deduplication_key::pg_catalog.text OPERATOR(pg_catalog.=) wanted.deduplication_key
                       AND tenant_id ", $tenant, "
                     LIMIT 1
                 ) AS held"
            ),
            parameters: &[TEXTARRAYOID, TEXTARRAYOID $(, $tenant_type)?],
            seeks: true,
        }
    };
}

// Two statements, since IS NOT DISTINCT FROM cannot seek in an index. The LIMIT keeps the planner from making
// a join of it that reads the whole index, which is as cheap as seeking while the table is empty.
static FIND_OF_TENANTS: Statement =
    find!(", pg_catalog.unnest($3)", ", tenant_id", "OPERATOR(pg_catalog.=) wanted.tenant_id", UUIDARRAYOID);
static FIND_OF_NO_TENANT: Statement = find!("", "", "IS NULL");
