//! The clock of every rule: one reading a call.
//!
//! `now()` is the start of the transaction: a lease taken late in a long one would be born expired, and an
//! event enqueued behind a row lock would sort before the one it waited for.

use crate::instant::Instant;
use pgrx::pg_sys;
use std::sync::LazyLock;
use std::time::Duration;

/// `clock_timestamp()`, as it stands now.
pub fn now() -> Instant {
    // SAFETY: reads the system clock.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    #[cfg(any(test, feature = "pg_test"))]
    let now = test_clock::shifted(now);
    Instant::from_micros(now)
}

/// A clock that never steps back, for what is measured: the time since this backend first looked at it.
pub fn steady() -> Duration {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    let steady = START.elapsed();
    #[cfg(any(test, feature = "pg_test"))]
    let steady = steady + test_clock::skipped();
    steady
}

/// Tests set the clocks, to see what a rule does at a moment that cannot be waited for.
#[cfg(any(test, feature = "pg_test"))]
pub mod test_clock {
    use crate::instant::Instant;
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static FROZEN: Cell<Option<i64>> = const { Cell::new(None) };
        static SKIPPED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn shifted(now: i64) -> i64 {
        FROZEN.get().unwrap_or(now)
    }

    pub(super) fn skipped() -> Duration {
        SKIPPED.get()
    }

    /// Stops this backend's wall clock at a moment; `None` lets it run again.
    pub fn freeze(at: Option<Instant>) {
        FROZEN.set(at.map(Instant::micros));
    }

    /// Puts this backend's steady clock forward.
    pub fn skip(by: Duration) {
        SKIPPED.set(SKIPPED.get() + by);
    }
}
