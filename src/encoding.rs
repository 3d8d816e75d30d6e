//! Text in a database whose encoding need not be UTF-8.

use pgrx::pg_sys;
use std::borrow::Cow;
use std::ffi::c_int;

fn is_utf8() -> bool {
    // SAFETY: reads a setting of the connected database.
    unsafe { pg_sys::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as c_int }
}

/// The text in UTF-8. PostgreSQL raises 22021 for bytes that are no text in the database's encoding.
pub fn to_utf8(text: &[u8]) -> Cow<'_, [u8]> {
    converter()(text)
}

/// What turns a text into UTF-8, for those who have many: the encoding is asked for once.
pub fn converter() -> fn(&[u8]) -> Cow<'_, [u8]> {
    if is_utf8() { |text| Cow::Borrowed(text) } else { convert }
}

fn convert(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    // SAFETY: the source is given with its length (a jsonb string is far below 2 GB); the result is a
    // NUL-terminated copy unless it is the source itself, when no conversion was needed.
    unsafe {
        let source = text.as_ptr().cast_mut();
        let converted = pg_sys::pg_do_encoding_conversion(
            source,
            text.len() as c_int,
            pg_sys::GetDatabaseEncoding(),
            pg_sys::pg_enc::PG_UTF8 as c_int,
        );
        if converted == source {
            return Cow::Borrowed(text);
        }
        let copy = std::ffi::CStr::from_ptr(converted.cast()).to_bytes().to_vec();
        pg_sys::pfree(converted.cast());
        Cow::Owned(copy)
    }
}

/// The length of the longest start of `text` that has at most `limit` bytes and ends with a whole
/// character.
pub fn clip(text: &[u8], limit: usize) -> usize {
    if text.len() <= limit {
        return text.len();
    }
    // SAFETY: the text is given with its length and is text in the database's encoding.
    let clipped = unsafe { pg_sys::pg_mbcliplen(text.as_ptr().cast(), text.len() as c_int, limit as c_int) };
    clipped as usize
}

/// The text for one of our messages. Messages are sent in the database's encoding, so outside UTF-8 what
/// is not ASCII is escaped.
pub fn for_message(text: &[u8]) -> String {
    if is_utf8() { String::from_utf8_lossy(text).into_owned() } else { text.escape_ascii().to_string() }
}
