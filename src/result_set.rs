//! The rows of a set-returning function, written straight into the tuplestore that PostgreSQL reads them
//! from: a claimed payload is copied once, and a TOASTed one not at all.

use crate::plans::Value;
use pgrx::pg_sys;

pub struct ResultSet {
    store: *mut pg_sys::Tuplestorestate,
    shape: pg_sys::TupleDesc,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl ResultSet {
    /// Begins the result of the function that is being called. PostgreSQL raises 0A000 where a set is not
    /// accepted.
    pub fn begin(call: pg_sys::FunctionCallInfo) -> Self {
        // SAFETY: the call's fcinfo; once InitMaterializedSRF is back, its resultinfo is a ReturnSetInfo
        // whose store and row shape live as long as the call.
        unsafe {
            pg_sys::InitMaterializedSRF(call, 0);
            let result = (*call).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            Self {
                store: (*result).setResult,
                shape: (*result).setDesc,
                values: Vec::new(),
                nulls: Vec::new(),
            }
        }
    }

    /// Adds a row; its values are copied.
    pub fn push(&mut self, row: impl Iterator<Item = Value>) {
        self.values.clear();
        self.nulls.clear();
        for value in row {
            self.values.push(value.unwrap_or(pg_sys::Datum::null()));
            self.nulls.push(value.is_none());
        }
        debug_assert_eq!(self.values.len(), unsafe { (*self.shape).natts as usize });
        // SAFETY: the store and the shape of `begin`; callers push as many values as their SQL has columns.
        unsafe {
            pg_sys::tuplestore_putvalues(
                self.store,
                self.shape,
                self.values.as_mut_ptr(),
                self.nulls.as_mut_ptr(),
            );
        }
    }
}
