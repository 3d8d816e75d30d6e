//! Waking workers that LISTEN: one notification a transaction, on the channel of `outbox.notify_channel`.

use crate::settings;
use pgrx::pg_sys;
use std::ffi::c_char;

/// Says that an event is there to be claimed, once the transaction commits; does nothing while the setting is
/// empty.
///
/// The text is always the same, so PostgreSQL makes one notification of all that a transaction says; and it
/// takes back what a subtransaction said that is rolled back.
pub fn workers() {
    if let Some(channel) = settings::notify_channel() {
        // SAFETY: two C strings; the channel's length was checked when the setting was set. An error that
        // PostgreSQL raises nevertheless is caught at the boundary, and goes on as one of Rust's.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| Async_Notify(channel.as_ptr(), c"".as_ptr())) };
    }
}

unsafe extern "C-unwind" {
    /// Of commands/async.h, for which pgrx has no binding.
    fn Async_Notify(channel: *const c_char, payload: *const c_char);
}
