//! The rules that arguments keep, each with the error that says so.

use crate::datum::{Payload, Span, Text};
use crate::error::OutboxError;
use crate::instant::Instant;
use pgrx::datum::UnboxDatum;
use pgrx::{Array, Uuid};

/// Names (aggregate and event types, workers) have 1 to this many bytes.
pub const NAME_BYTES: usize = 255;
/// Deduplication keys have 1 to this many bytes.
pub const KEY_BYTES: usize = 1024;
/// Error codes are cut to this many bytes.
pub const ERROR_CODE_BYTES: usize = 1024;

/// 22004 for NULL.
pub fn required<T>(parameter: &'static str, value: Option<T>) -> Result<T, OutboxError> {
    value.ok_or(OutboxError::MissingArgument { parameter })
}

/// The elements of a required array, none of which is NULL.
pub fn elements<'a, T: UnboxDatum>(
    parameter: &'static str,
    value: Option<&'a Array<'_, T>>,
) -> Result<Vec<T::As<'a>>, OutboxError> {
    let elements: Option<_> = required(parameter, value)?.iter().collect();
    elements.ok_or(OutboxError::NullElement { parameter })
}

/// A required name.
pub fn name<'a>(parameter: &'static str, value: Option<Text<'a>>) -> Result<Text<'a>, OutboxError> {
    let value = required(parameter, value)?;
    within(parameter, &value, NAME_BYTES, "Names have 1 to 255 bytes.")?;
    Ok(value)
}

/// A deduplication key, when there is one.
pub fn key<'a>(value: Option<Text<'a>>) -> Result<Option<Text<'a>>, OutboxError> {
    if let Some(key) = &value {
        within(
            "deduplication_key",
            key,
            KEY_BYTES,
            "Deduplication keys have 1 to 1024 bytes; of longer ones, use a digest. NULL means no deduplication.",
        )?;
    }
    Ok(value)
}

fn within(
    parameter: &'static str,
    value: &Text,
    limit: usize,
    rule: &'static str,
) -> Result<(), OutboxError> {
    match value.bytes().len() {
        0 => invalid(parameter, "empty", rule),
        length if length > limit => invalid(parameter, format!("{length} bytes long"), rule),
        _ => Ok(()),
    }
}

/// A tenant, when there is one.
pub fn tenant(parameter: &'static str, value: Option<Uuid>) -> Result<Option<Uuid>, OutboxError> {
    if value.is_some_and(|tenant| tenant.as_bytes() == &[0; 16]) {
        return invalid(parameter, "the all-zero uuid", "No event has this tenant; NULL stands for none.");
    }
    Ok(value)
}

/// A JSON object, when there is one.
pub fn object<'a>(
    parameter: &'static str,
    value: Option<Payload<'a>>,
) -> Result<Option<Payload<'a>>, OutboxError> {
    if value.is_some_and(|value| !value.is_object()) {
        return invalid(parameter, "no JSON object", "Pass a JSON object, or NULL.");
    }
    Ok(value)
}

/// A moment that is not ±infinity, when there is one.
pub fn finite(parameter: &'static str, value: Option<Instant>) -> Result<Option<Instant>, OutboxError> {
    if value.is_some_and(|moment| !moment.is_finite()) {
        return invalid(parameter, "infinite", "Pass a finite timestamp.");
    }
    Ok(value)
}

/// A required interval, finite and longer than nothing; in microseconds.
pub fn positive(parameter: &'static str, value: Option<Span>) -> Result<i128, OutboxError> {
    let value = required(parameter, value)?;
    if !value.is_finite() {
        return invalid(parameter, "infinite", "Pass a finite interval above zero.");
    }
    if value.micros() <= 0 {
        return invalid(parameter, "zero or negative", "Pass a finite interval above zero.");
    }
    Ok(value.micros())
}

/// A required interval, finite, nothing or longer; in microseconds.
pub fn not_negative(parameter: &'static str, value: Option<Span>) -> Result<i128, OutboxError> {
    let value = required(parameter, value)?;
    if !value.is_finite() {
        return invalid(parameter, "infinite", "Pass a finite interval of zero or more.");
    }
    if value.micros() < 0 {
        return invalid(parameter, "negative", "Pass a finite interval of zero or more.");
    }
    Ok(value.micros())
}

/// A required count of at least one.
pub fn at_least_one(parameter: &'static str, value: Option<i32>) -> Result<i32, OutboxError> {
    match required(parameter, value)? {
        count if count < 1 => invalid(parameter, count.to_string(), "Pass 1 or more."),
        count => Ok(count),
    }
}

/// A limit of attempts, or the setting's when there is none.
pub fn max_attempts(value: Option<i32>) -> Result<i32, OutboxError> {
    match value {
        Some(limit) if limit < 0 => invalid(
            "max_attempts",
            limit.to_string(),
            "Pass 0 (dead at the first failure) or more, or NULL for outbox.max_attempts.",
        ),
        Some(limit) => Ok(limit),
        None => Ok(crate::settings::max_attempts()),
    }
}

/// 22023, with what was found and the rule it breaks.
pub fn invalid<T>(
    parameter: &'static str,
    found: impl Into<String>,
    rule: &'static str,
) -> Result<T, OutboxError> {
    Err(OutboxError::InvalidArgument { parameter, found: found.into(), rule })
}

/// A required error code, cut to what is kept of it: a worker that reports a whole stack trace must not
/// lose its settlement over it.
pub fn error_code<'a>(value: Option<Text<'a>>) -> Result<Text<'a>, OutboxError> {
    let code = required("error_code", value)?;
    if code.bytes().is_empty() {
        return invalid("error_code", "empty", "Say in a word why the attempt failed.");
    }
    Ok(code.start(crate::encoding::clip(code.bytes(), ERROR_CODE_BYTES)))
}
