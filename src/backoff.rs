//! How long a failed event waits: exponential backoff with full jitter.
//!
//! The rule is that of M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): the
//! ceiling doubles with each attempt and the delay is drawn evenly below it, so that events which failed
//! together do not come back together.

use std::time::Duration;

/// The delay before the next attempt.
///
/// * `attempts`: counted attempts so far, the failed one included; below 1 counts as 1.
/// * `base`, `max`: the ceiling after the first attempt and the ceiling of all ceilings.
/// * `draw`: evenly distributed in `0.0 ..= 1.0`.
pub fn delay(attempts: i64, base: Duration, max: Duration, draw: f64) -> Duration {
    let doublings = attempts.saturating_sub(1).clamp(0, 31) as u32;
    let ceiling = base.saturating_mul(1 << doublings).min(max);
    ceiling.mul_f64(draw.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_ceiling_doubles_up_to_the_maximum() {
        let ceilings =
            [1, 2, 3, 4, 11, 12, 13, 1_000_000, i64::MAX].map(|n| delay(n, BASE, MAX, 1.0).as_secs());
        assert_eq!(ceilings, [1, 2, 4, 8, 1024, 2048, 3600, 3600, 3600]);
    }

    #[test]
    fn attempts_below_one_count_as_the_first() {
        for attempts in [0, -1, i64::MIN] {
            assert_eq!(delay(attempts, BASE, MAX, 1.0), BASE);
        }
    }

    #[test]
    fn the_delay_is_drawn_below_the_ceiling() {
        assert_eq!(delay(3, BASE, MAX, 0.0), Duration::ZERO);
        assert_eq!(delay(3, BASE, MAX, 0.5), Duration::from_secs(2));
        assert_eq!(delay(3, BASE, MAX, 7.0), Duration::from_secs(4));
    }

    #[test]
    fn a_base_above_the_maximum_is_held_down_and_zero_means_at_once() {
        assert_eq!(delay(1, MAX * 2, MAX, 1.0), MAX);
        assert_eq!(delay(9, Duration::ZERO, MAX, 1.0), Duration::ZERO);
        let largest = Duration::from_millis(i32::MAX as u64);
        assert_eq!(delay(i64::MAX, largest, largest, 1.0), largest);
    }
}
