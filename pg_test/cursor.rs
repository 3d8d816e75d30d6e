//! The scan cursor in one backend, with clocks that the test moves.

#[pgrx::pg_schema]
mod tests {
    use crate::clock::test_clock;
    use crate::pg_test::support::{Clock, claim, claim_at_once, enqueue, run};
    use pgrx::prelude::*;
    use std::time::Duration;

    /// An event that is due, but sorts before all that the cursor has seen.
    fn enqueue_behind(clock: &Clock) -> String {
        let past = format!("'{}'", clock.after("-1 hour"));
        enqueue(&[("available_at", &past)])
    }

    /// A clock, and a table of the test's own: other tests run beside it, and their entries make sweeps dear.
    fn alone() -> Clock {
        run("TRUNCATE outbox_event");
        Clock::stopped()
    }

    /// Puts the cursor ahead; a sweep is not due for a while.
    fn claim_ahead() {
        let ahead = enqueue(&[]);
        assert_eq!(claim("'w', 1"), [ahead]);
    }

    #[pg_test]
    fn a_full_batch_passes_over_what_is_behind_until_a_sweep_is_due() {
        let mut clock = alone();
        claim_ahead();
        clock.advance("1 second");
        claim_ahead();
        let behind = enqueue_behind(&clock);
        let ahead = enqueue(&[]);
        assert_eq!(claim_at_once("'w', 1"), [ahead], "no sweep is due yet");
        test_clock::skip(Duration::from_millis(200));
        assert_eq!(claim_at_once("'w', 1"), [behind]);
    }

    #[pg_test]
    fn a_queue_that_is_never_empty_is_swept_too() {
        let clock = alone();
        claim_ahead();
        let behind = enqueue_behind(&clock);
        (0..20).for_each(|_| drop(enqueue(&[])));
        test_clock::skip(Duration::from_millis(200));
        let claimed = claim_at_once("'w', 5");
        assert_eq!(claimed.len(), 5);
        assert_eq!(claimed[0], behind, "it is handed out first, in the order of the queue");
    }

    #[pg_test]
    fn a_claim_that_comes_back_short_sweeps_at_once() {
        let mut clock = alone();
        claim_ahead();
        clock.advance("1 second");
        assert!(claim_at_once("'w', 1").is_empty());
        let behind = enqueue_behind(&clock);
        assert_eq!(claim_at_once("'w', 1"), [behind]);
    }

    #[pg_test]
    fn a_wall_clock_that_steps_back_starts_the_cursor_over() {
        let mut clock = alone();
        claim_ahead();
        clock.advance("1 minute");
        claim_ahead();
        clock.advance("-30 seconds");
        let (behind, next) = (enqueue(&[]), enqueue(&[]));
        assert_eq!(claim_at_once("'w', 1"), [behind]);
        assert_eq!(claim_at_once("'w', 1"), [next]);
    }

    #[pg_test]
    fn a_savepoint_that_is_rolled_back_takes_the_cursor_back() {
        let mut clock = alone();
        claim_ahead();
        clock.advance("1 minute");
        let (first, second) = (enqueue(&[]), enqueue(&[]));
        clock.advance("1 minute");
        run("DO $$
             BEGIN
                 PERFORM FROM outbox_claim_batch('w', 10);
                 RAISE EXCEPTION 'the batch is given up';
             EXCEPTION WHEN raise_exception THEN NULL;
             END $$");
        assert_eq!(claim_at_once("'w', 1"), [first]);
        assert_eq!(claim_at_once("'w', 1"), [second]);
    }

    #[pg_test]
    fn events_that_cannot_be_claimed_any_more_are_buried_by_the_sweep() {
        let mut clock = alone();
        let hanging: Vec<_> = (0..3).map(|_| enqueue(&[])).collect();
        assert_eq!(claim_at_once("'w', 3"), hanging);
        clock.advance("1 hour");
        claim_ahead_of(&hanging);
    }

    /// With one attempt allowed, the expired ones go to dead and the fresh one is handed out.
    fn claim_ahead_of(hanging: &[String]) {
        let fresh = enqueue(&[]);
        assert_eq!(claim_at_once("'w', 1, max_attempts => 1"), [fresh]);
        let dead = Spi::get_one::<i64>("SELECT count(*) FROM outbox_event WHERE status = 'dead'");
        assert_eq!(dead, Ok(Some(hanging.len() as i64)));
    }

    #[pg_test]
    fn truncate_starts_the_cursor_over() {
        // Not alone(): a second TRUNCATE in one transaction keeps the file.
        let clock = Clock::stopped();
        claim_ahead();
        run("TRUNCATE outbox_event");
        let behind = enqueue_behind(&clock);
        (0..3).for_each(|_| drop(enqueue(&[])));
        assert_eq!(claim_at_once("'w', 1"), [behind]);
    }
}
