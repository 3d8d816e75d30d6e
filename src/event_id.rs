//! Event ids: UUIDs of version 7 (RFC 9562, 5.7), strictly increasing within a backend.

use pgrx::prelude::*;

/// A new event id: a UUIDv7, greater than every one that this backend made before, also within one
/// millisecond and after the clock has stepped back.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_event_id() -> pgrx::Uuid {
    next()
}

/// The next id of this backend.
pub fn next() -> pgrx::Uuid {
    pgrx::Uuid::from_bytes(*uuid::Uuid::now_v7().as_bytes())
}
