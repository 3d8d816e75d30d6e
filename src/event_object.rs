//! An event as a JSON object, whose keys are the parameters of `outbox_enqueue`.
//!
//! It is read as it is stored, so that a payload goes from the array into the table in one copy, with every
//! digit and at any depth.

use crate::argument;
use crate::datum::{Payload, Text};
use crate::enqueue::Arguments;
use crate::error::OutboxError;
use crate::literal;
use crate::payload_hash::stored::{Damaged, Value};

/// The arguments that an object holds. JSON null is a payload, and SQL NULL for every other parameter.
///
/// # Errors
/// `22023` for what is no object, for an unknown key, and for a value of the wrong kind.
pub fn read<'a>(value: Value<'a>) -> Result<Arguments<'a>, OutboxError> {
    let Value::Container(object) = value else { return not_an_object() };
    if !object.is_object() {
        return not_an_object();
    }
    let mut arguments = Arguments::default();
    for member in object.members().map_err(damaged)? {
        let (key, value) = member.map_err(damaged)?;
        set(&mut arguments, key, value)?;
    }
    Ok(arguments)
}

pub fn damaged(_: Damaged) -> OutboxError {
    OutboxError::DamagedPayload
}

fn set<'a>(arguments: &mut Arguments<'a>, key: &[u8], value: Value<'a>) -> Result<(), OutboxError> {
    let text = |parameter| text(parameter, value);
    let uuid = |parameter| text(parameter)?.map(|text| literal::uuid(parameter, text)).transpose();
    match key {
        b"tenant_id" => arguments.tenant_id = uuid("tenant_id")?,
        b"aggregate_type" => arguments.aggregate_type = text("aggregate_type")?.map(Text::of),
        b"aggregate_id" => arguments.aggregate_id = uuid("aggregate_id")?,
        b"event_type" => arguments.event_type = text("event_type")?.map(Text::of),
        b"deduplication_key" => arguments.deduplication_key = text("deduplication_key")?.map(Text::of),
        b"payload" => arguments.payload = Some(Payload::of(value)),
        b"available_at" => {
            let moment = |text| literal::moment("available_at", text);
            arguments.available_at = text("available_at")?.map(moment).transpose()?;
        }
        b"headers" => {
            arguments.headers = (!matches!(value, Value::Null)).then(|| Payload::of(value));
        }
        _ => {
            return Err(OutboxError::InvalidElement {
                fault: "has an unknown key",
                rule: "Keys are tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key, payload, \
                       available_at and headers.",
            });
        }
    }
    Ok(())
}

fn not_an_object<T>() -> Result<T, OutboxError> {
    Err(OutboxError::InvalidElement {
        fault: "is no JSON object",
        rule: "Each element is an object whose keys are the parameters of outbox_enqueue.",
    })
}

/// The bytes of a JSON string; none for JSON null.
fn text<'a>(parameter: &'static str, value: Value<'a>) -> Result<Option<&'a [u8]>, OutboxError> {
    let found = match value {
        Value::String(text) => return Ok(Some(text)),
        Value::Null => return Ok(None),
        Value::Bool(_) => "a JSON boolean",
        Value::Number(_) => "a JSON number",
        Value::Container(container) if container.is_object() => "a JSON object",
        Value::Container(_) => "a JSON array",
    };
    argument::invalid(parameter, found, "Pass a JSON string, or null.")
}
