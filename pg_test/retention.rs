//! `outbox_purge`: what is deleted, what is not, and in which order.

#[pgrx::pg_schema]
mod tests {
    use crate::clock::test_clock;
    use crate::pg_test::support::*;
    use pgrx::prelude::*;
    use std::time::Duration;

    const EVERYTHING: &str = "'0', statuses => '{completed, dead}'";

    fn purge(arguments: &str) -> i64 {
        one(&format!("outbox_purge({arguments})"))
    }

    fn left() -> Vec<String> {
        texts("SELECT id FROM outbox_event ORDER BY id")
    }

    /// A completed event that was completed so long before the clock's time.
    fn completed(clock: &Clock, ago: &str) -> String {
        let at = format!("'{}'", clock.after(&format!("-{ago}")));
        insert(&[("status", "'completed'"), ("completed_at", &at)])
    }

    fn dead(clock: &Clock, ago: &str) -> String {
        let at = format!("'{}'", clock.after(&format!("-{ago}")));
        insert(&[("status", "'dead'"), ("dead_at", &at)])
    }

    /// A table of the test's own: other tests run beside it, and their entries make sweeps dear.
    fn alone() -> Clock {
        run("TRUNCATE outbox_event");
        Clock::stopped()
    }

    #[pg_test]
    fn what_was_completed_longer_ago_is_deleted() {
        let clock = alone();
        completed(&clock, "604801 seconds");
        let young = completed(&clock, "604799 seconds");
        assert_eq!(purge("'7 days'"), 1);
        assert_eq!(left(), [young]);
    }

    #[pg_test]
    fn zero_deletes_all_that_has_ended() {
        let _clock = alone();
        only_event(State::Completed);
        assert_eq!(purge("'0'"), 1);
        only_event(State::Dead);
        assert_eq!(purge("'0'"), 0, "only what is completed, unless told otherwise");
        assert_eq!(purge("'0', statuses => '{dead}'"), 1);
    }

    #[pg_test]
    fn what_has_not_ended_is_never_deleted_whatever_its_age() {
        let mut clock = alone();
        for state in [State::NeverClaimed, State::Leased, State::Failed] {
            let id = only_event(state);
            let before = columns(&id);
            clock.advance("100 years");
            assert_eq!(purge(EVERYTHING), 0, "{state:?}");
            assert_eq!(columns(&id), before);
        }
    }

    #[pg_test]
    fn a_row_whose_end_and_status_do_not_fit_is_not_deleted() {
        let clock = alone();
        let ids = [completed(&clock, "1 day"), dead(&clock, "1 day")];
        run("SET LOCAL session_replication_role = replica; UPDATE outbox_event SET status = 'pending'");
        assert_eq!(purge(EVERYTHING), 0);
        assert_eq!(left(), ids);
    }

    #[pg_test]
    fn those_that_ended_first_go_first_and_a_bite_is_no_bigger_than_it_may_be() {
        let clock = alone();
        let late = completed(&clock, "1 hour");
        completed(&clock, "3 hours");
        let middle = completed(&clock, "2 hours");
        assert_eq!(purge("'0', 1"), 1);
        assert_eq!(left(), [late.clone(), middle]);
        assert_eq!(purge("'0', 1"), 1);
        assert_eq!(left(), [late]);
        assert_eq!([purge("'0', 1"), purge("'0', 1")], [1, 0]);
    }

    #[pg_test]
    fn the_statuses_go_in_the_order_in_which_they_are_given() {
        let clock = alone();
        for (statuses, survivors) in [("{completed,dead}", "dead"), ("{dead,completed}", "completed")] {
            run("DELETE FROM outbox_event");
            (0..2).for_each(|_| drop((completed(&clock, "1 hour"), dead(&clock, "2 hours"))));
            assert_eq!(purge(&format!("'0', 2, '{statuses}'")), 2);
            assert_eq!(texts("SELECT DISTINCT status FROM outbox_event"), [survivors]);
            assert_eq!(purge(&format!("'0', 9, '{statuses}'")), 2);
        }
        completed(&clock, "1 hour");
        assert_eq!(purge("'0', 9, '{completed,completed}'"), 1);
    }

    #[pg_test]
    fn ten_thousand_at_a_time_unless_told_otherwise() {
        alone();
        run("INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash, status)
             SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('0', 64), 'completed'
             FROM generate_series(1, 10001)");
        assert_eq!([purge("'0'"), purge("'0'"), purge("'0'")], [10_000, 1, 0]);
    }

    #[pg_test]
    fn with_an_event_ends_the_deduplication_of_its_key() {
        let _clock = alone();
        let key = [("deduplication_key", "'k'")];
        let first = enqueue(&key);
        claim("'w'");
        run(&format!("SELECT outbox_complete('{first}', 'w')"));
        assert_eq!(enqueue(&key), first);
        assert_eq!(purge("'0'"), 1);
        let second = enqueue(&key);
        assert_ne!(second, first);
        assert_eq!(left(), [second]);
    }

    #[pg_test]
    fn a_purge_with_arguments_out_of_range_is_refused() {
        for (arguments, sqlstate, parameter) in [
            ("NULL", "22004", "older_than"),
            ("'1 day', NULL", "22004", "max_events"),
            ("'1 day', statuses => NULL", "22004", "statuses"),
            ("'1 day', statuses => '{completed, NULL}'", "22004", "statuses"),
            ("'-1 microsecond'", "22023", "older_than"),
            ("'-1 month 29 days'", "22023", "older_than"),
            ("'1 day', 0", "22023", "max_events"),
            ("'1 day', -1", "22023", "max_events"),
            ("'1 day', statuses => '{}'", "22023", "statuses"),
            ("'1 day', statuses => '{pending}'", "22023", "statuses"),
            ("'1 day', statuses => '{completed, processing}'", "22023", "statuses"),
            ("'1 day', statuses => '{Completed}'", "22023", "statuses"),
            ("'1 day', statuses => ARRAY['']", "22023", "statuses"),
        ] {
            assert_refused(&format!("outbox_purge({arguments})"), sqlstate, parameter);
        }
    }

    #[pg_test]
    fn an_age_beyond_all_timestamps_deletes_nothing() {
        let clock = alone();
        completed(&clock, "1 day");
        assert_eq!(purge("'178000000 years'"), 0);
        assert_eq!(purge("'178000000 years', statuses => '{dead}'"), 0);
    }

    #[pg_test]
    fn what_is_behind_the_last_bite_is_found_at_once_where_that_is_cheap() {
        let clock = alone();
        for ago in ["1 hour", "2 hours", "1 second"] {
            completed(&clock, ago);
            assert_eq!(purge("'0'"), 1, "{ago}");
        }
        // Also when there is much of it.
        for _ in 0..3 {
            for _ in 0..500 {
                completed(&clock, "3 hours");
            }
            assert_eq!(purge("'0'"), 500);
        }
    }

    #[pg_test]
    fn bites_that_are_full_look_behind_themselves_when_it_is_time() {
        let clock = alone();
        (0..4).for_each(|_| drop(completed(&clock, "1 hour")));
        assert_eq!(purge("'0', 1"), 1);
        let behind = completed(&clock, "2 hours");
        assert_eq!(purge("'0', 1"), 1);
        assert!(left().contains(&behind), "it is not time yet");
        test_clock::skip(Duration::from_millis(200));
        assert_eq!(purge("'0', 1"), 1);
        assert!(!left().contains(&behind));
    }

    #[pg_test]
    fn a_longer_age_after_a_shorter_one_and_the_other_way_round() {
        let clock = alone();
        assert_eq!(purge("'0'"), 0);
        completed(&clock, "3 days");
        completed(&clock, "1 day");
        assert_eq!([purge("'2 days'"), purge("'0'"), purge("'2 days'")], [1, 1, 0]);
    }

    #[pg_test]
    fn what_a_savepoint_brings_back_is_deleted_again() {
        let clock = alone();
        (0..3).for_each(|_| drop(completed(&clock, "1 hour")));
        refused("DO $$ BEGIN PERFORM outbox_purge('0', 2); RAISE 'no'; END $$");
        assert_eq!(events(), 3);
        assert_eq!([purge("'0', 2"), purge("'0', 2")], [2, 1]);
    }
}
