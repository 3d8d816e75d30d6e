//! Values from their text, just as PostgreSQL reads them under the session's settings.

use crate::argument;
use crate::error::OutboxError;
use crate::instant::Instant;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;
use pgrx::{FromDatum, Uuid, direct_function_call_as_datum, pg_sys};
use std::ffi::CString;

/// 22023 for a text that is no uuid.
pub fn uuid(parameter: &'static str, text: &[u8]) -> Result<Uuid, OutboxError> {
    match read(pg_sys::uuid_in, text) {
        Some(uuid) => Ok(uuid),
        None => argument::invalid(parameter, "no uuid", "Pass a uuid: 32 hexadecimal digits."),
    }
}

/// 22023 for a text that is no moment.
pub fn moment(parameter: &'static str, text: &[u8]) -> Result<Instant, OutboxError> {
    match read(pg_sys::timestamptz_in, text) {
        Some(moment) => Ok(moment),
        None => argument::invalid(
            parameter,
            "no timestamp",
            "Pass a timestamp with a time zone, such as 2031-01-31T12:00:00Z.",
        ),
    }
}

/// The value; none when the text is not one, which PostgreSQL says in an error of class 22. (Its message
/// has the text in it, ours names the element; the transaction ends with the one as with the other.)
fn read<T: FromDatum>(input: Input, text: &[u8]) -> Option<T> {
    let text = CString::new(text).ok()?;
    let datum = PgTryBuilder::new(|| {
        let arguments = [Some(text.as_ptr().into()), Some(pg_sys::InvalidOid.into()), Some((-1).into())];
        // SAFETY: a type's input function takes a C string, a type that only some look at, and no modifier.
        unsafe { direct_function_call_as_datum(input, &arguments) }
    })
    .catch_others(|error| if is_about_data(&error) { None } else { error.rethrow() })
    .execute()?;
    // SAFETY: callers name the type that their input function returns.
    unsafe { T::from_datum(datum, false) }
}

type Input = unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum;

fn is_about_data(error: &CaughtError) -> bool {
    let CaughtError::PostgresError(report) = error else { return false };
    /// The bits of an SQLSTATE that are its class.
    const CLASS: i32 = 0xFFF;
    report.sql_error_code() as i32 & CLASS == PgSqlErrorCode::ERRCODE_DATA_EXCEPTION as i32
}
