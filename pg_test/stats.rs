//! `outbox_stats`: what is counted, and as what.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    fn stats(columns: &str) -> Vec<String> {
        texts(&format!("SELECT concat_ws(' ', {columns}) FROM outbox_stats ORDER BY event_type"))
    }

    const COUNTS: &str = "event_type, ready, scheduled, processing, dead";

    #[pg_test]
    fn an_event_counts_in_the_column_of_its_state() {
        for (state, counts) in [
            (State::NeverClaimed, "1 0 0 0"),
            (State::Leased, "0 0 1 0"),
            (State::Failed, "1 0 0 0"),
            (State::Dead, "0 0 0 1"),
        ] {
            only_event(state);
            assert_eq!(stats(COUNTS), [format!("order.created {counts}")], "{state:?}");
        }
        enqueue(&[("available_at", "'2100-01-01'")]);
        assert_eq!(stats(COUNTS), ["order.created 0 1 0 1"]);
    }

    #[pg_test]
    fn a_type_with_completed_events_only_does_not_appear() {
        only_event(State::Completed);
        assert_eq!(stats(COUNTS), [""; 0]);
    }

    #[pg_test]
    fn each_type_has_a_row_of_its_own() {
        run("DELETE FROM outbox_event");
        for event_type in ["'b'", "'a'", "'b'"] {
            enqueue(&[("event_type", event_type)]);
        }
        insert(&[("event_type", "'c'"), ("status", "'dead'")]);
        assert_eq!(stats(COUNTS), ["a 1 0 0 0", "b 2 0 0 0", "c 0 0 0 1"]);
    }

    #[pg_test]
    fn ages_are_those_of_the_oldest_by_the_clock() {
        run("DELETE FROM outbox_event");
        for ago in ["1 hour", "1 day", "1 minute"] {
            enqueue(&[("available_at", &format!("clock_timestamp() - interval '{ago}'"))]);
        }
        enqueue(&[("available_at", "clock_timestamp() + interval '1 day'")]);
        let lease = |ago| format!("clock_timestamp() - interval '{ago}'");
        for ago in ["2 hours", "2 minutes"] {
            insert(&[("status", "'processing'"), ("locked_by", "'w'"), ("locked_at", &lease(ago))]);
        }
        assert!(holds(
            "oldest_ready_age BETWEEN '1 day' AND '1 day 10 minutes'
             AND oldest_lease_age BETWEEN '2 hours' AND '2 hours 10 minutes' FROM outbox_stats"
        ));
    }

    #[pg_test]
    fn an_age_is_null_when_there_is_nothing_of_that_kind() {
        only_event(State::Dead);
        assert!(holds("oldest_ready_age IS NULL AND oldest_lease_age IS NULL FROM outbox_stats"));
        only_event(State::Leased);
        assert!(holds("oldest_ready_age IS NULL AND oldest_lease_age IS NOT NULL FROM outbox_stats"));
        only_event(State::NeverClaimed);
        assert!(holds("oldest_ready_age IS NOT NULL AND oldest_lease_age IS NULL FROM outbox_stats"));
    }

    #[pg_test]
    fn the_clock_is_not_the_transactions() {
        only_event(State::NeverClaimed);
        // In this transaction, whose start is before the event's.
        assert_eq!(stats("ready"), ["1"]);
        assert!(holds("oldest_ready_age > '0' FROM outbox_stats"));
    }
}
