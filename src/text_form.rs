//! The text of a column's value, as `value::text` makes it, whatever its type and the session's settings.

use crate::datum::Text;
use crate::pinned::Pinned;
use crate::trigger::{TableColumn, TableRow};
use pgrx::FromDatum;
use pgrx::pg_sys::{self, CoercionContext, CoercionPathType};
use std::ffi::CStr;

/// The settings that a type's text may depend on, as pg_dump sets them.
const SETTINGS: [(&CStr, &CStr); 5] = [
    (c"DateStyle", c"ISO, MDY"),
    (c"IntervalStyle", c"postgres"),
    (c"TimeZone", c"UTC"),
    (c"extra_float_digits", c"3"),
    (c"bytea_output", c"hex"),
];

/// The types that identifiers mostly have, whose text depends on no setting.
const PLAIN: [pg_sys::Oid; 9] = [
    pg_sys::INT2OID,
    pg_sys::INT4OID,
    pg_sys::INT8OID,
    pg_sys::NUMERICOID,
    pg_sys::OIDOID,
    pg_sys::TEXTOID,
    pg_sys::VARCHAROID,
    pg_sys::BPCHAROID,
    pg_sys::NAMEOID,
];

/// The text of a column's value, unless that is null; lives as long as the call.
pub fn of<'a>(row: &TableRow, column: TableColumn) -> Option<Text<'a>> {
    let (value, kind) = (row.value(column)?, column.base_type());
    let _pinned = (!PLAIN.contains(&kind)).then(|| Pinned::at(&SETTINGS));
    let mut function = pg_sys::InvalidOid;
    // SAFETY: the value is of the type, so its cast to text and its output function take it. Both results are in
    // the current memory context.
    unsafe {
        let path = pg_sys::find_coercion_pathway(
            pg_sys::TEXTOID,
            kind,
            CoercionContext::COERCION_EXPLICIT,
            &mut function,
        );
        let text = match path {
            CoercionPathType::COERCION_PATH_FUNC if pg_sys::get_func_nargs(function) == 1 => {
                let collation = pg_sys::DEFAULT_COLLATION_OID;
                Text::from_datum(pg_sys::OidFunctionCall1Coll(function, collation, value), false)
            }
            CoercionPathType::COERCION_PATH_RELABELTYPE => Text::from_datum(value, false),
            _ => None,
        };
        Some(text.unwrap_or_else(|| written(value, kind)))
    }
}

/// The text that the type's output function makes.
///
/// # Safety
/// The value is of the type.
unsafe fn written<'a>(value: pg_sys::Datum, kind: pg_sys::Oid) -> Text<'a> {
    let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
    // SAFETY: the value is what the type's output function takes; that returns a C string.
    unsafe {
        pg_sys::getTypeOutputInfo(kind, &mut output, &mut is_varlena);
        Text::of(CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, value)).to_bytes())
    }
}
