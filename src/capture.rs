//! Capturing a table: each row that is inserted, updated or deleted becomes an event.

use crate::aggregate_id;
use crate::argument::NAME_BYTES;
use crate::datum::{Payload, Text};
use crate::encoding;
use crate::enqueue;
use crate::error::{ErrorReport, OutboxError, Uncaptured};
use crate::plans::{Rows, Session, Statement};
use crate::text_form;
use crate::trigger::{TableColumn, TableRow, TriggerCall, Tuple};
use pgrx::Uuid;
use pgrx::pg_sys::{self, RECORDOID, TEXTOID};
use pgrx::prelude::*;
use std::ffi::CStr;

/// Enqueues an event for a row of the table whose trigger it is:
///
/// `AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('order', 'id')`
///
/// * The first argument is the aggregate type, 1 to 247 bytes; `.created`, `.updated` or `.deleted` behind it is
///   the event type.
/// * The second is the column that names the aggregate: a uuid, or any other type by way of
///   `outbox_aggregate_id`.
/// * `tenant=column` may follow: a column of type uuid.
///
/// # Errors
/// `39P01` not called by an AFTER ROW trigger; `22023` invalid arguments, an empty id, the all-zero tenant;
/// `42703` no such column; `22004` the id is null; `42804` a column of the wrong type; and those of
/// `outbox_enqueue`.
#[pg_extern(sql = "
CREATE FUNCTION outbox_capture() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
")]
fn outbox_capture(call: pg_sys::FunctionCallInfo) -> Result<Tuple, ErrorReport> {
    let change = Change::of(call)?;
    let arguments = Arguments::of(&change)?;
    let aggregate_type = Text::of(arguments.aggregate_type);
    let aggregate_id = change.aggregate_id(&aggregate_type, arguments.id_column)?;
    let tenant_id = arguments.tenant_column.map(|column| change.tenant_id(column)).transpose()?.flatten();

    let session = Session::open(call)?;
    if !session.may_insert() {
        // PostgreSQL would say so too, but not where the event comes from.
        Err(change.uncaptured(Uncaptured::Forbidden))?;
    }
    let described = change.describe(&session)?;
    let event_type = [arguments.aggregate_type, change.ending().as_bytes()].concat();
    let event = enqueue::Arguments {
        tenant_id,
        aggregate_type: Some(aggregate_type),
        aggregate_id: Some(aggregate_id),
        event_type: Some(Text::of(&event_type)),
        payload: described.first().and_then(|row| row.get::<Payload>(1)),
        ..enqueue::Arguments::default()
    };
    enqueue::enqueue(&session, &event.event()?)?;
    Ok(Tuple::none())
}

/// What CREATE TRIGGER says about the events.
struct Arguments<'a> {
    aggregate_type: &'a [u8],
    id_column: &'a CStr,
    tenant_column: Option<&'a CStr>,
}

/// What every event type ends with has this many bytes.
const ENDING_BYTES: usize = ".created".len();

impl<'a> Arguments<'a> {
    fn of(change: &Change<'a>) -> Result<Self, OutboxError> {
        let invalid = |found: String| Err(change.uncaptured(Uncaptured::Arguments { found }));
        let arguments = change.trigger.arguments();
        let [aggregate_type, id_column, options @ ..] = &arguments[..] else {
            let count = arguments.len();
            return invalid(format!("Aggregate type and id column are required; arguments given: {count}."));
        };
        let aggregate_type = aggregate_type.to_bytes();
        if !(1..=NAME_BYTES - ENDING_BYTES).contains(&aggregate_type.len()) {
            let length = aggregate_type.len();
            return invalid(format!("The aggregate type has {length} bytes; 1 to 247 are possible."));
        }
        let mut tenant_column = None;
        for option in options {
            match option.to_bytes_with_nul().strip_prefix(b"tenant=") {
                Some(_) if tenant_column.is_some() => {
                    return invalid("The option tenant= is given more than once.".into());
                }
                Some(column) => tenant_column = CStr::from_bytes_with_nul(column).ok(),
                None => {
                    let option = encoding::for_message(option.to_bytes());
                    return invalid(format!("There is no option \"{option}\"."));
                }
            }
        }
        Ok(Self { aggregate_type, id_column, tenant_column })
    }
}

/// What happened to a row.
struct Change<'a> {
    trigger: TriggerCall<'a>,
    before: Option<TableRow>,
    after: Option<TableRow>,
    /// The row that says whose event it is: the one that is there now or, of a deleted one, was there last.
    row: TableRow,
}

impl<'a> Change<'a> {
    fn of(call: pg_sys::FunctionCallInfo) -> Result<Self, OutboxError> {
        let trigger = TriggerCall::of(call).filter(TriggerCall::is_after_row);
        let change = trigger.and_then(|trigger| {
            let (before, after) = (trigger.old_row(), trigger.new_row());
            Some(Self { trigger, before, after, row: after.or(before)? })
        });
        change.ok_or(OutboxError::NotATrigger {
            function: "outbox_capture",
            expected: "an AFTER INSERT OR UPDATE OR DELETE row trigger",
            hint: "Create a trigger AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW. TRUNCATE cannot be captured.",
        })
    }

    /// The operation, as TG_OP names it.
    fn operation(&self) -> &'static str {
        match (self.before, self.after) {
            (None, _) => "INSERT",
            (_, None) => "DELETE",
            _ => "UPDATE",
        }
    }

    /// The end of the event type.
    fn ending(&self) -> &'static str {
        match (self.before, self.after) {
            (None, _) => ".created",
            (_, None) => ".deleted",
            _ => ".updated",
        }
    }

    /// The payload, in the first column of the one row.
    fn describe<'s>(&self, session: &'s Session) -> Result<Rows<'s>, OutboxError> {
        let operation = Text::of(self.operation().as_bytes()).datum();
        let [before, after] = [self.before, self.after].map(|row| row.map(|row| row.record()));
        session.run(&DESCRIBE, [Some(operation), before, after])
    }

    fn aggregate_id(&self, aggregate_type: &Text, name: &CStr) -> Result<Uuid, OutboxError> {
        let column = self.column(name)?;
        let named = || encoding::for_message(name.to_bytes());
        if column.is_composite() {
            return Err(
                self.uncaptured(Uncaptured::CompositeId { column: named(), kind: column.type_name() })
            );
        }
        if let Some(id) = self.row.uuid(column) {
            return Ok(id);
        }
        match text_form::of(&self.row, column) {
            None => Err(self.uncaptured(Uncaptured::NullId { column: named() })),
            Some(key) if key.bytes().is_empty() => {
                Err(self.uncaptured(Uncaptured::EmptyId { column: named() }))
            }
            Some(key) => aggregate_id::of(aggregate_type, &key),
        }
    }

    fn tenant_id(&self, name: &CStr) -> Result<Option<Uuid>, OutboxError> {
        let column = self.column(name)?;
        if !column.is_uuid() {
            let (column, kind) = (encoding::for_message(name.to_bytes()), column.type_name());
            return Err(self.uncaptured(Uncaptured::TenantIsNoUuid { column, kind }));
        }
        Ok(self.row.uuid(column))
    }

    fn column(&self, name: &CStr) -> Result<TableColumn, OutboxError> {
        self.row.column(name).ok_or_else(|| {
            self.uncaptured(Uncaptured::NoSuchColumn { column: encoding::for_message(name.to_bytes()) })
        })
    }

    fn uncaptured(&self, reason: Uncaptured) -> OutboxError {
        let (trigger, table) = self.trigger.names();
        let [trigger, table] = [trigger, table].map(|name| encoding::for_message(name.to_bytes()));
        OutboxError::Uncaptured { trigger, table, reason }
    }
}

/// One statement for all tables: a record says itself what row type it has, so the plan depends on none.
static DESCRIBE: Statement = Statement {
    sql: "SELECT pg_catalog.jsonb_build_object('operation'::pg_catalog.text, $1,
                                               'before'::pg_catalog.text, $2, 'after'::pg_catalog.text, $3)",
    parameters: &[TEXTOID, RECORDOID, RECORDOID],
    seeks: false,
};
