//! The order in which events are claimed, which is the order of the claim index.

use crate::instant::Instant;

/// Where an event stands in the queue: the key of its entry in the claim index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub available_at: Instant,
    pub created_at: Instant,
    pub id: [u8; 16],
}

impl Order {
    /// Before every event.
    pub const FIRST: Self = Self::start_of(Instant::from_micros(i64::MIN));

    /// Before every event that is available at this moment or later.
    pub const fn start_of(available_at: Instant) -> Self {
        Self { available_at, created_at: Instant::from_micros(i64::MIN), id: [0; 16] }
    }

    /// Behind every event that is available at this moment or earlier.
    pub const fn end_of(available_at: Instant) -> Self {
        Self { available_at, created_at: Instant::from_micros(i64::MAX), id: [0xFF; 16] }
    }
}
