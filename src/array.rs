//! Arrays, for the parameters of statements that work on a whole set at once.

use crate::plans::Value;
use pgrx::pg_sys;

/// An array of one dimension; `None` is a NULL in it. It is a copy in the current memory context: inside a
/// session, it lives as long as the session.
///
/// The values must be of the element type, as PostgreSQL holds them; a compressed or TOASTed one is expanded
/// in the copy.
pub fn of(element_type: pg_sys::Oid, values: impl IntoIterator<Item = Value>) -> pg_sys::Datum {
    let (mut datums, mut nulls): (Vec<_>, Vec<_>) =
        values.into_iter().map(|value| (value.unwrap_or(pg_sys::Datum::null()), value.is_none())).unzip();
    // PostgreSQL refuses an array of more than 134,217,727 values (54000).
    let (mut length, mut first) = (i32::try_from(datums.len()).unwrap_or(i32::MAX), 1);
    let (mut width, mut by_value, mut alignment) = (0, false, 0);
    // SAFETY: as many values and nulls as are said, each value of a type whose width and alignment the
    // catalog says; PostgreSQL raises an error for a type that there is not.
    unsafe {
        pg_sys::get_typlenbyvalalign(element_type, &mut width, &mut by_value, &mut alignment);
        pg_sys::Datum::from(pg_sys::construct_md_array(
            datums.as_mut_ptr(),
            nulls.as_mut_ptr(),
            1,
            &mut length,
            &mut first,
            element_type,
            i32::from(width),
            by_value,
            alignment,
        ))
    }
}
