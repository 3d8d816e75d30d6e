//! Moments, and their arithmetic at the edges of what PostgreSQL can hold.

/// A moment: microseconds since 2000-01-01 UTC, as `timestamptz` holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(i64);

impl Instant {
    /// The first and the last moment that `timestamptz` can hold; beyond them are the infinities.
    const FIRST: i64 = -211_813_488_000_000_000;
    const LAST: i64 = 9_223_371_331_199_999_999;

    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    pub fn is_finite(self) -> bool {
        self.0 != i64::MIN && self.0 != i64::MAX
    }

    /// The moment so many microseconds later (or earlier), held inside what `timestamptz` can hold.
    pub fn plus(self, micros: i128) -> Self {
        let sum = i128::from(self.0) + micros;
        Self(sum.clamp(i128::from(Self::FIRST), i128::from(Self::LAST)) as i64)
    }
}
