//! How long a failed event waits when its worker does not say.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// The delays, in microseconds, after so many events have failed in this attempt.
    fn delays(draws: usize, attempt: i32, forgiven: i32) -> Vec<i64> {
        let clock = Clock::stopped();
        (0..draws).map(|_| delay(&clock, attempt, forgiven)).collect()
    }

    fn delay(clock: &Clock, attempt: i32, forgiven: i32) -> i64 {
        let now = quoted(&clock.now());
        let id = insert(&[
            ("status", "'processing'"),
            ("attempt_count", &attempt.to_string()),
            ("forgiven_attempts", &forgiven.to_string()),
            ("locked_by", "'w'"),
            ("locked_at", &now),
        ]);
        let status: String = one(&format!("outbox_fail('{id}', 'w', 'e', 2147483647)"));
        assert_eq!(status, "pending");
        one(&format!(
            "(extract(epoch FROM available_at - {now}::timestamptz) * 1000000)::bigint
             FROM outbox_event WHERE id = '{id}'"
        ))
    }

    fn set(base: &str, max: &str) {
        run(&format!("SET LOCAL outbox.backoff_base = '{base}'; SET LOCAL outbox.backoff_max = '{max}'"));
    }

    const DRAWS: usize = 200;

    /// Checks that delays are spread evenly between nothing and the ceiling. 200 draws miss the lowest or the
    /// highest fifth once in 10^19 runs.
    fn assert_spread(delays: &[i64], ceiling: &str) {
        let ceiling: i64 = one(&format!("(extract(epoch FROM interval '{ceiling}') * 1000000)::bigint"));
        let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        assert!(least >= 0 && least < ceiling / 5, "least {least} of {ceiling}");
        assert!(most <= ceiling && most > ceiling / 5 * 4, "most {most} of {ceiling}");
        let mean = delays.iter().sum::<i64>() / delays.len() as i64;
        assert!((ceiling * 3 / 10..ceiling * 7 / 10).contains(&mean), "mean {mean} of {ceiling}");
    }

    #[pg_test]
    fn the_first_delay_is_drawn_between_nothing_and_a_second_by_default() {
        assert_spread(&delays(DRAWS, 1, 0), "1 second");
    }

    #[pg_test]
    fn the_ceiling_doubles_with_each_attempt() {
        for (attempt, ceiling) in [(2, "2 seconds"), (3, "4 seconds"), (6, "32 seconds")] {
            assert_spread(&delays(DRAWS, attempt, 0), ceiling);
        }
    }

    #[pg_test]
    fn the_ceiling_is_an_hour_at_most_by_default() {
        assert_spread(&delays(DRAWS, 12, 0), "2048 seconds");
        for attempt in [13, 40, 1_000_000_000] {
            assert_spread(&delays(DRAWS, attempt, 0), "1 hour");
        }
    }

    #[pg_test]
    fn forgiven_attempts_do_not_lengthen_the_delay() {
        assert_spread(&delays(DRAWS, 30, 28), "2 seconds");
        assert_spread(&delays(DRAWS, 30, 30), "1 second");
    }

    #[pg_test]
    fn the_settings_are_the_ceilings() {
        set("250ms", "1h");
        assert_spread(&delays(DRAWS, 1, 0), "0.25 second");
        set("10s", "35s");
        assert_spread(&delays(DRAWS, 2, 0), "20 seconds");
        assert_spread(&delays(DRAWS, 3, 0), "35 seconds");
    }

    #[pg_test]
    fn a_maximum_below_the_base_holds() {
        set("1min", "2s");
        assert_spread(&delays(DRAWS, 1, 0), "2 seconds");
    }

    #[pg_test]
    fn a_base_or_a_maximum_of_zero_means_at_once() {
        for (base, max) in [("0", "1h"), ("1h", "0"), ("0", "0")] {
            set(base, max);
            assert!(delays(20, 9, 0).iter().all(|delay| *delay == 0), "base {base}, maximum {max}");
        }
    }

    #[pg_test]
    fn the_largest_settings_are_taken() {
        set("2147483647", "2147483647");
        assert_spread(&delays(DRAWS, 1_000_000_000, 0), "2147483.647 seconds");
    }

    #[pg_test]
    fn no_two_events_that_fail_together_come_back_together() {
        set("1h", "1h");
        let mut delays = delays(DRAWS, 1, 0);
        delays.sort_unstable();
        delays.dedup();
        assert!(delays.len() > DRAWS - 5, "{} different delays", delays.len());
    }

    #[pg_test]
    fn seeding_the_random_numbers_of_the_session_does_not_repeat_the_delays() {
        let seeded = || {
            run("SELECT setseed(0.5)");
            delays(5, 9, 0)
        };
        assert_ne!(seeded(), seeded());
    }
}
