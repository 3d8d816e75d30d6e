//! The settings, all under `outbox.`: each can be set for a session, a role, a database or the server.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};
use std::ffi::{CStr, CString, c_char, c_void};

static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(25);
static BACKOFF_BASE: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static BACKOFF_MAX: GucSetting<i32> = GucSetting::<i32>::new(3_600_000);
static MAX_PAYLOAD_BYTES: GucSetting<i32> = GucSetting::<i32>::new(0);
static NOTIFY_CHANNEL: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static DELETE_COMPLETED: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Counted attempts after which an event goes to dead; 0 means at the first failure.
pub fn max_attempts() -> i32 {
    MAX_ATTEMPTS.get()
}

/// The ceiling of the first retry's delay, in milliseconds.
pub fn backoff_base() -> i32 {
    BACKOFF_BASE.get()
}

/// The ceiling of any retry's delay, in milliseconds.
pub fn backoff_max() -> i32 {
    BACKOFF_MAX.get()
}

/// The most bytes that a payload may have, when there is a limit.
pub fn max_payload_bytes() -> Option<usize> {
    usize::try_from(MAX_PAYLOAD_BYTES.get()).ok().filter(|&limit| limit > 0)
}

/// The channel on which workers are woken, when there is one; 1 to 63 bytes.
pub fn notify_channel() -> Option<CString> {
    NOTIFY_CHANNEL.get().filter(|channel| !channel.is_empty())
}

/// Whether completing deletes the row.
pub fn delete_completed() -> bool {
    DELETE_COMPLETED.get()
}

/// Registers the settings; called once, when the library is loaded.
pub fn register() {
    GucRegistry::define_int_guc(
        c"outbox.max_attempts",
        c"Attempts after which an event that fails, or whose lease expires, goes to dead.",
        c"Counts attempts less the forgiven ones. 0 means dead at the first failure. A max_attempts argument takes precedence.",
        &MAX_ATTEMPTS,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"outbox.backoff_base",
        c"Ceiling of the delay before the first retry of a failed event.",
        c"The ceiling doubles with each counted attempt, up to outbox.backoff_max; the delay is drawn evenly between 0 and the ceiling.",
        &BACKOFF_BASE,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"outbox.backoff_max",
        c"Ceiling of the delay before any retry of a failed event.",
        c"See outbox.backoff_base.",
        &BACKOFF_MAX,
        0,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"outbox.max_payload_bytes",
        c"The most bytes that the payload of an event may have.",
        c"Counts the uncompressed jsonb, wherever a payload is stored whose hash is left to the extension. 0 means no limit.",
        &MAX_PAYLOAD_BYTES,
        0,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_BYTE,
    );
    // SAFETY: the hook is guarded, and lives as long as the library.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"outbox.notify_channel",
            c"Channel that is notified when a transaction makes an event claimable.",
            c"Once a transaction, with an empty text, as LISTEN takes it: at most 63 bytes, case matters. Empty means off.",
            &NOTIFY_CHANNEL,
            GucContext::Userset,
            GucFlags::default(),
            Some(check_channel),
            None,
            None,
        );
    }
    GucRegistry::define_bool_guc(
        c"outbox.delete_completed",
        c"Completing an event deletes its row.",
        c"On: no history is kept, a second outbox_complete finds no event (P0002), and the deduplication key is free at once.",
        &DELETE_COMPLETED,
        GucContext::Userset,
        GucFlags::default(),
    );
    // SAFETY: the name is a constant; from here on, an unknown outbox.* setting is an error.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"outbox".as_ptr()) };
}

/// Refuses the name of a channel that NOTIFY would refuse: here, and not in a business transaction.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn check_channel(
    new: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes the value as a C string, and only reads the texts of a refusal.
    unsafe {
        let fits = (*new).is_null() || CStr::from_ptr(*new).count_bytes() < pg_sys::NAMEDATALEN as usize;
        if !fits {
            pg_sys::GUC_check_errdetail_string = c"The name has more than 63 bytes.".as_ptr().cast_mut();
            pg_sys::GUC_check_errhint_string =
                c"Choose a name of at most 63 bytes, or an empty one for no notification."
                    .as_ptr()
                    .cast_mut();
        }
        fits
    }
}
