//! A row of `outbox_event` in the hands of its trigger.

use crate::error::OutboxError;
use crate::plans::Value;
use crate::trigger::{TableRow, TriggerCall, Tuple};
use pgrx::{FromDatum, pg_sys};
use std::marker::PhantomData;

/// The columns that the trigger looks at, by their number in sql/table.sql. Columns are only ever added at
/// the end, so that a number holds for every release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Column {
    Id = 1,
    TenantId = 2,
    AggregateType = 3,
    AggregateId = 4,
    EventType = 5,
    Payload = 7,
    Headers = 8,
    PayloadHash = 9,
    Status = 10,
    AttemptCount = 11,
    ForgivenAttempts = 12,
    AvailableAt = 13,
    LockedAt = 14,
    LockedBy = 15,
    CompletedAt = 17,
    DeadAt = 18,
    CreatedAt = 19,
    UpdatedAt = 20,
    ClaimedInOrder = 21,
}

impl Column {
    /// Every column, with its name and the type that it is read as; the types of aggregate and event and the status are domains, whose
    /// oids are not known.
    const ALL: [(Self, &'static str, Option<pg_sys::Oid>); 19] = [
        (Self::Id, "id", Some(pg_sys::UUIDOID)),
        (Self::TenantId, "tenant_id", Some(pg_sys::UUIDOID)),
        (Self::AggregateType, "aggregate_type", None),
        (Self::AggregateId, "aggregate_id", Some(pg_sys::UUIDOID)),
        (Self::EventType, "event_type", None),
        (Self::Payload, "payload", Some(pg_sys::JSONBOID)),
        (Self::Headers, "headers", Some(pg_sys::JSONBOID)),
        (Self::PayloadHash, "payload_hash", Some(pg_sys::TEXTOID)),
        (Self::Status, "status", None),
        (Self::AttemptCount, "attempt_count", Some(pg_sys::INT4OID)),
        (Self::ForgivenAttempts, "forgiven_attempts", Some(pg_sys::INT4OID)),
        (Self::AvailableAt, "available_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::LockedAt, "locked_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::LockedBy, "locked_by", Some(pg_sys::TEXTOID)),
        (Self::CompletedAt, "completed_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::DeadAt, "dead_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::CreatedAt, "created_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::UpdatedAt, "updated_at", Some(pg_sys::TIMESTAMPTZOID)),
        (Self::ClaimedInOrder, "claimed_in_order", Some(pg_sys::BOOLOID)),
    ];

    /// The first column that a table has not where and as it is looked for: a trigger can be put on any
    /// table, and a column's type can be altered.
    pub fn altered_in(shape: pg_sys::TupleDesc) -> Option<&'static str> {
        let fits = |column: Self, expected: Option<pg_sys::Oid>| {
            // An older catalog has no column yet that was added since.
            let Some(attribute) = attribute(shape, column) else { return column == Self::ClaimedInOrder };
            // Any type of variable length can be read as a text.
            expected.map_or(attribute.attlen == -1, |expected| attribute.atttypid == expected)
                && !attribute.attisdropped
        };
        Self::ALL.into_iter().find(|&(column, _, expected)| !fits(column, expected)).map(|(_, name, _)| name)
    }

    /// How many bytes its values have; none where that varies, and zero where they are held by value.
    fn width(self) -> Option<usize> {
        match self {
            Self::Id | Self::TenantId | Self::AggregateId => Some(16),
            Self::AggregateType
            | Self::EventType
            | Self::Payload
            | Self::Headers
            | Self::PayloadHash
            | Self::Status
            | Self::LockedBy => None,
            _ => Some(0),
        }
    }
}

/// The description of a column, if there are so many. Read in place: this is asked for every row.
fn attribute<'a>(shape: pg_sys::TupleDesc, column: Column) -> Option<&'a pg_sys::FormData_pg_attribute> {
    let index = column as i32 - 1;
    // SAFETY: the shape of an open relation, which has `natts` columns.
    unsafe {
        if index >= (*shape).natts {
            return None;
        }
        #[cfg(feature = "pg18")]
        let attribute = &*pg_sys::TupleDescAttr(shape, index);
        #[cfg(not(feature = "pg18"))]
        let attribute = &(*shape).attrs.as_slice((*shape).natts as usize)[index as usize];
        Some(attribute)
    }
}

/// A call by the BEFORE ROW trigger for INSERT or UPDATE.
pub struct GuardCall<'a> {
    trigger: TriggerCall<'a>,
    new: TableRow,
}

impl<'a> GuardCall<'a> {
    /// 39P01 when the function was called in any other way, or for a table that is not like `outbox_event`.
    pub fn of(call: pg_sys::FunctionCallInfo) -> Result<Self, OutboxError> {
        let trigger = TriggerCall::of(call).filter(TriggerCall::is_before_row);
        let written = trigger.and_then(|trigger| Some(Self { trigger, new: trigger.new_row()? }));
        let guard = written.ok_or(OutboxError::NotATrigger {
            function: "outbox_event_guard",
            expected: "a BEFORE INSERT OR UPDATE row trigger of outbox_event",
            hint: "Leave it to outbox_event's own trigger.",
        })?;
        match Column::altered_in(guard.trigger.shape()) {
            Some(column) => Err(OutboxError::AlteredTable { column }),
            None => Ok(guard),
        }
    }

    /// The row that is about to be stored.
    pub fn new_row(&self) -> TupleValues<'a> {
        TupleValues::of(self.new)
    }

    /// The row before an UPDATE.
    pub fn old_row(&self) -> Option<TupleValues<'a>> {
        self.trigger.old_row().map(TupleValues::of)
    }

    /// The tuple to store: the new one, with what was set in the row.
    pub fn store(&self, mut row: TupleValues) -> Tuple {
        let tuple = self.new.tuple;
        if row.set.is_empty() {
            return Tuple(tuple);
        }
        let (mut values, mut nulls): (Vec<_>, Vec<_>) = row.set.iter().map(|&column| row.at(column)).unzip();
        // SAFETY: as many columns as values; the result is a copy in the call's memory context.
        Tuple(unsafe {
            pg_sys::heap_modify_tuple_by_cols(
                tuple,
                self.trigger.shape(),
                row.set.len() as i32,
                row.set.as_mut_ptr().cast(),
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            )
        })
    }
}

/// The values of a row, and which of them were set anew.
pub struct TupleValues<'a> {
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    set: Vec<Column>,
    call: PhantomData<&'a ()>,
}

impl TupleValues<'_> {
    fn of(row: TableRow) -> Self {
        let (values, nulls) = row.values();
        Self { values, nulls, set: Vec::new(), call: PhantomData }
    }

    /// The column's value as a Rust type that reads the column's SQL type.
    pub fn get<T: FromDatum>(&self, column: Column) -> Option<T> {
        let (value, null) = self.at(column);
        // SAFETY: callers name the column with its type in sql/table.sql.
        unsafe { T::from_datum(value, null) }
    }

    /// Sets the column's value; one that lives as long as the call.
    pub fn set(&mut self, column: Column, value: Value) {
        let index = column as usize - 1;
        self.values[index] = value.unwrap_or(pg_sys::Datum::null());
        self.nulls[index] = value.is_none();
        self.set.push(column);
    }

    /// Whether a column has the same value in both rows, byte for byte; TOASTed values are compared by their
    /// pointers.
    pub fn same(&self, other: &Self, column: Column) -> bool {
        match (self.at(column), other.at(column)) {
            ((_, true), (_, true)) => true,
            ((a, false), (b, false)) if column.width() == Some(0) => a.value() == b.value(),
            ((a, false), (b, false)) => stored_bytes(a, column) == stored_bytes(b, column),
            _ => false,
        }
    }

    /// A column that an older catalog has not yet is null.
    fn at(&self, column: Column) -> (pg_sys::Datum, bool) {
        let index = column as usize - 1;
        match self.values.get(index) {
            Some(value) => (*value, self.nulls[index]),
            None => (pg_sys::Datum::null(), true),
        }
    }
}

/// The bytes of a value that is held by reference.
fn stored_bytes<'a>(datum: pg_sys::Datum, column: Column) -> &'a [u8] {
    let start: *mut pg_sys::varlena = datum.cast_mut_ptr();
    // SAFETY: the value lives as long as the row, and has the width of its type or says itself how many
    // bytes it has.
    unsafe {
        let width = column.width().unwrap_or_else(|| pgrx::varsize_any(start));
        std::slice::from_raw_parts(start.cast(), width)
    }
}
