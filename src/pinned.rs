//! Settings that are held at a value while something runs, as a function's SET clause does it.

use pgrx::pg_sys;
use std::ffi::{CStr, c_int};

/// Settings that are put back on drop or, after an error, with the (sub)transaction.
pub struct Pinned {
    nest_level: c_int,
}

impl Pinned {
    /// Holds settings of PostgreSQL's own that every user may set.
    pub fn at(settings: &[(&CStr, &CStr)]) -> Self {
        // SAFETY: the new nest level is left in drop or, after an error, with the (sub)transaction.
        unsafe {
            let nest_level = pg_sys::NewGUCNestLevel();
            for (name, value) in settings {
                pg_sys::set_config_option(
                    name.as_ptr(),
                    value.as_ptr(),
                    pg_sys::GucContext::PGC_USERSET,
                    pg_sys::GucSource::PGC_S_SESSION,
                    pg_sys::GucAction::GUC_ACTION_SAVE,
                    true,
                    0,
                    false,
                );
            }
            Self { nest_level }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: leaves the level that `at` entered.
            unsafe { pg_sys::AtEOXact_GUC(true, self.nest_level) };
        }
    }
}
