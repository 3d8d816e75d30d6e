//! The SQL values that cross the border, as thin as they can be: a payload, a text or a moment keeps the
//! bytes it came with, so that what is only passed on is never parsed, rounded or copied.

use crate::instant::Instant;
use crate::payload_hash::stored::Value;
use pgrx::callconv::{Arg, ArgAbi};
use pgrx::datum::{Datum, UnboxDatum};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, pg_sys};
use std::marker::PhantomData;

/// A `jsonb`, as it was handed over: maybe compressed, maybe a pointer into a TOAST table.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    datum: pg_sys::Datum,
    call: PhantomData<&'a ()>,
}

impl<'a> Payload<'a> {
    pub fn datum(&self) -> pg_sys::Datum {
        self.datum
    }

    /// How many bytes it has when nothing is compressed, without looking at them: its header says so.
    pub fn size(&self) -> usize {
        // SAFETY: the datum is a jsonb varlena; of one that is stored elsewhere only the pointer is read.
        unsafe { pg_sys::toast_raw_datum_size(self.datum) - pg_sys::VARHDRSZ }
    }

    /// A value inside another jsonb, as one of its own: a copy in the current memory context, as in `Text::of`.
    pub fn of(value: Value<'a>) -> Self {
        let (head, body) = value.alone();
        Self { datum: varlena(&[&head, body]).into(), call: PhantomData }
    }

    /// Whether it is a JSON object (and not an array, a scalar or JSON null).
    pub fn is_object(&self) -> bool {
        crate::payload_hash::is_object(self.detoast().container())
    }

    /// The whole value in memory, for as long as the result lives.
    pub fn detoast(&self) -> Detoasted<'a> {
        let given = self.datum.cast_mut_ptr();
        // SAFETY: the datum is a jsonb varlena that outlives the call it was handed to.
        let plain = unsafe { pg_sys::pg_detoast_datum(given) };
        Detoasted { plain, copied: plain != given, call: PhantomData }
    }
}

/// A varlena with a four-byte header and nothing compressed; a copy is freed when it is dropped.
pub struct Detoasted<'a> {
    plain: *mut pg_sys::varlena,
    copied: bool,
    call: PhantomData<&'a ()>,
}

impl Detoasted<'_> {
    /// The jsonb container: all bytes behind the varlena's header.
    pub fn container(&self) -> &[u8] {
        bytes_of(self.plain)
    }
}

impl Drop for Detoasted<'_> {
    fn drop(&mut self) {
        // When an error unwinds, the memory context that holds the copy is about to go as a whole.
        if self.copied && !std::thread::panicking() {
            // SAFETY: pg_detoast_datum allocated the copy, and nobody else holds it.
            unsafe { pg_sys::pfree(self.plain.cast()) };
        }
    }
}

/// A `text` in the database's encoding.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    plain: *mut pg_sys::varlena,
    call: PhantomData<&'a ()>,
}

impl<'a> Text<'a> {
    pub fn datum(&self) -> pg_sys::Datum {
        pg_sys::Datum::from(self.plain)
    }

    pub fn bytes(&self) -> &'a [u8] {
        bytes_of(self.plain)
    }

    /// Bytes in the database's encoding as a text: a copy in the current memory context, which must live as
    /// long as the text is used.
    pub fn of(bytes: &[u8]) -> Self {
        Self { plain: varlena(&[bytes]), call: PhantomData }
    }

    /// The first `length` bytes as a text of their own.
    pub fn start(&self, length: usize) -> Self {
        Self::of(&self.bytes()[..length.min(self.bytes().len())])
    }
}

/// The parts, one behind the other, as a value of variable length.
fn varlena(parts: &[&[u8]]) -> *mut pg_sys::varlena {
    let size = pg_sys::VARHDRSZ + parts.iter().map(|part| part.len()).sum::<usize>();
    // SAFETY: PostgreSQL allocates what is asked for, or raises an error; header and parts fill it.
    unsafe {
        let start = pg_sys::palloc(size).cast::<u8>();
        pgrx::set_varsize_4b(start.cast(), size as i32);
        let mut end = start.add(pg_sys::VARHDRSZ);
        for part in parts {
            end.copy_from_nonoverlapping(part.as_ptr(), part.len());
            end = end.add(part.len());
        }
        start.cast()
    }
}

fn bytes_of<'a>(plain: *mut pg_sys::varlena) -> &'a [u8] {
    // SAFETY: `plain` is a detoasted varlena that lives as long as the value that holds it.
    unsafe { std::slice::from_raw_parts(pgrx::vardata_any(plain).cast(), pgrx::varsize_any_exhdr(plain)) }
}

/// An `interval`; a month counts as 30 days and a day as 24 hours, as in PostgreSQL's own comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    micros: i128,
    finite: bool,
}

impl Span {
    pub fn micros(self) -> i128 {
        self.micros
    }

    pub fn is_finite(self) -> bool {
        self.finite
    }

    fn new(interval: &pg_sys::Interval) -> Self {
        const DAY: i128 = 86_400_000_000;
        // From PostgreSQL 17 the infinities are an interval whose three fields are all at their limit.
        let fields = (interval.month, interval.day, interval.time);
        let finite = fields != (i32::MAX, i32::MAX, i64::MAX) && fields != (i32::MIN, i32::MIN, i64::MIN);
        let days = i128::from(interval.month) * 30 + i128::from(interval.day);
        Self { micros: days * DAY + i128::from(interval.time), finite }
    }
}

impl FromDatum for Payload<'_> {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        (!is_null).then_some(Self { datum, call: PhantomData })
    }
}

impl FromDatum for Text<'_> {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        // SAFETY: PostgreSQL hands over a text where the function's SQL says text.
        (!is_null).then(|| Self {
            plain: unsafe { pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr()) },
            call: PhantomData,
        })
    }
}

// SAFETY: an element of a text[] is a text, and lives as long as the array.
unsafe impl UnboxDatum for Text<'_> {
    type As<'src>
        = Text<'src>
    where
        Self: 'src;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Text<'src>
    where
        Self: 'src,
    {
        // SAFETY: the caller vouches for the type and that the element is not NULL.
        unsafe { Text::from_datum(datum.sans_lifetime(), false).unwrap_unchecked() }
    }
}

impl FromDatum for Instant {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        (!is_null).then_some(Self::from_micros(datum.value() as i64))
    }
}

impl FromDatum for Span {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        // SAFETY: PostgreSQL hands over an interval where the function's SQL says interval.
        (!is_null).then(|| Self::new(unsafe { &*datum.cast_mut_ptr::<pg_sys::Interval>() }))
    }
}

/// An argument type that PostgreSQL knows already.
macro_rules! sql_argument {
    ($rust:ty, $sql:literal) => {
        // SAFETY: `FromDatum` above reads just this SQL type.
        unsafe impl SqlTranslatable for $rust {
            const TYPE_IDENT: &'static str = concat!("outbox_ext::datum::", $sql);
            const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
            const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal($sql));
            const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
                Ok(ReturnsRef::One(SqlMappingRef::literal($sql)));
        }

        // SAFETY: as above; NULL never gets here, since every argument is an Option.
        unsafe impl<'fcx> ArgAbi<'fcx> for $rust {
            unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
                // SAFETY: the caller vouches for the type and that the argument is not NULL.
                unsafe { arg.unbox_arg_using_from_datum().unwrap_unchecked() }
            }
        }
    };
}

sql_argument!(Payload<'_>, "jsonb");
sql_argument!(Text<'_>, "text");
sql_argument!(Instant, "timestamptz");
sql_argument!(Span, "interval");
