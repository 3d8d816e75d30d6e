//! The settings, all under `outbox.`: each can be set for a session, a role, a database or the server.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};

static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(25);
static BACKOFF_BASE: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static BACKOFF_MAX: GucSetting<i32> = GucSetting::<i32>::new(3_600_000);

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
    // SAFETY: the name is a constant; from here on, an unknown outbox.* setting is an error.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"outbox".as_ptr()) };
}
