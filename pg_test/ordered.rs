//! Ordered claims: strictly one event of an aggregate after the other.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const A: &str = "'a0000000-0000-4000-8000-00000000000a'";
    const B: &str = "'a0000000-0000-4000-8000-00000000000b'";

    fn of(aggregate: &str) -> String {
        enqueue(&[("aggregate_id", aggregate)])
    }

    fn three_of(aggregate: &str) -> [String; 3] {
        run("DELETE FROM outbox_event");
        [(); 3].map(|()| of(aggregate))
    }

    fn in_order() -> Vec<String> {
        claim("'w', ordered => true")
    }

    /// Without a sweep: what a claim finds ahead of its cursor.
    fn in_order_at_once() -> Vec<String> {
        claim_at_once("'w', ordered => true")
    }

    fn complete(id: &str) {
        run(&format!("SELECT outbox_complete('{id}', 'w')"));
    }

    fn fail(id: &str, max_attempts: i32, due: &str) -> String {
        one(&format!("outbox_fail('{id}', 'w', 'e', {max_attempts}, {due})"))
    }

    fn nothing() -> Vec<String> {
        Vec::new()
    }

    #[pg_test]
    fn one_event_of_each_aggregate_is_in_flight() {
        let [first, second, _] = three_of(A);
        let other = of(B);
        assert_eq!(in_order(), [first.clone(), other]);
        assert_eq!(in_order(), nothing());
        complete(&first);
        assert_eq!(in_order(), [second]);
    }

    #[pg_test]
    fn an_aggregate_is_its_type_and_its_id() {
        let first = enqueue(&[("aggregate_id", A), ("aggregate_type", "'order'")]);
        let other = enqueue(&[("aggregate_id", A), ("aggregate_type", "'invoice'")]);
        assert_eq!(in_order(), [first, other]);
    }

    #[pg_test]
    fn the_next_is_found_ahead_of_the_cursor_when_its_turn_comes() {
        let ids = three_of(A);
        for id in &ids {
            assert_eq!(in_order_at_once(), [id.as_str()]);
            assert_eq!(in_order_at_once(), nothing());
            complete(id);
        }
        let ids = three_of(A);
        for id in &ids {
            assert_eq!(in_order_at_once(), [id.as_str()]);
            run(&format!("SELECT outbox_complete_batch('{{{id}}}', 'w')"));
        }
        run("SET LOCAL outbox.delete_completed = on");
        let ids = three_of(A);
        for id in &ids {
            assert_eq!(in_order_at_once(), [id.as_str()]);
            complete(id);
        }
        let ids = three_of(A);
        for id in &ids {
            assert_eq!(in_order_at_once(), [id.as_str()]);
            assert_eq!(fail(id, 0, "NULL"), "dead");
        }
    }

    #[pg_test]
    fn a_failure_holds_its_aggregate_until_the_retry() {
        let mut clock = Clock::stopped();
        let [first, second, _] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        assert_eq!(fail(&first, 9, &format!("'{}'", clock.after("1 minute"))), "pending");
        assert_eq!(in_order(), nothing());
        clock.advance("1 minute");
        assert_eq!(in_order(), [first.as_str()]);
        complete(&first);
        assert_eq!(in_order(), [second]);
    }

    #[pg_test]
    fn an_earlier_one_that_is_scheduled_for_later_blocks() {
        let mut clock = Clock::stopped();
        let first =
            enqueue(&[("aggregate_id", A), ("available_at", &format!("'{}'", clock.after("1 hour")))]);
        clock.advance("1 second");
        let _second = of(A);
        assert_eq!(in_order(), nothing());
        clock.advance("1 hour");
        assert_eq!(in_order(), [first]);
    }

    #[pg_test]
    fn the_dead_and_the_completed_do_not_block() {
        let [first, second, third] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        assert_eq!(fail(&first, 0, "NULL"), "dead");
        assert_eq!(in_order(), [second.as_str()]);
        complete(&second);
        assert_eq!(in_order(), [third]);
    }

    #[pg_test]
    fn an_expired_lease_is_taken_again_and_holds_its_aggregate() {
        let mut clock = Clock::stopped();
        let [first, second, _] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        clock.advance("1 hour");
        assert_eq!(claim("'w', ordered => true"), [first.as_str()]);
        assert_eq!(in_order(), nothing());
        clock.advance("1 hour");
        assert_eq!(claim("'w', max_attempts => 2, ordered => true"), [second]);
        assert_eq!(columns(&first)["status"], "dead");
    }

    #[pg_test]
    fn a_released_event_comes_back_before_the_next() {
        let [first, ..] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        run(&format!("SELECT outbox_release_batch('{{{first}}}', 'w')"));
        assert_eq!(columns(&first)["claimed_in_order"], "NULL");
        assert_eq!(in_order_at_once(), [first]);
    }

    #[pg_test]
    fn a_later_one_in_flight_blocks_an_earlier_one_that_comes_back() {
        let [first, second, third] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        assert_eq!(fail(&first, 0, "NULL"), "dead");
        assert_eq!(in_order(), [second.as_str()]);
        update(&first, "status = 'pending'");
        assert_eq!(in_order(), nothing());
        complete(&second);
        assert_eq!(in_order(), [first.as_str()]);
        complete(&first);
        assert_eq!(in_order(), [third]);
    }

    #[pg_test]
    fn a_later_one_whose_lease_expired_gives_way_to_an_earlier_one() {
        let mut clock = Clock::stopped();
        let [first, second, _] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        assert_eq!(fail(&first, 0, "NULL"), "dead");
        assert_eq!(in_order(), [second.as_str()]);
        update(&first, "status = 'pending'");
        clock.advance("1 hour");
        let found = [in_order(), in_order()].concat();
        assert_eq!(found, [first.as_str()]);
        let given_back = columns(&second);
        assert_eq!(
            (given_back["status"].as_str(), given_back["last_error_code"].as_str()),
            ("pending", "lease_expired")
        );
        complete(&first);
        assert_eq!(in_order(), [second]);
    }

    #[pg_test]
    fn events_of_one_moment_keep_the_order_of_their_ids() {
        let _clock = Clock::stopped();
        let ids = three_of(A);
        for id in ids {
            assert_eq!(in_order(), [id.as_str()]);
            complete(&id);
        }
    }

    #[pg_test]
    fn a_full_batch_takes_a_head_of_each_aggregate_and_passes_the_rest() {
        run("INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, created_at)
             SELECT 'order', ('a0000000-0000-4000-8000-' || lpad(aggregate::text, 12, '0'))::uuid, 'order.created', '1',
                    clock_timestamp()
             FROM generate_series(1, 20) AS aggregate, generate_series(1, 50)");
        for _ in 0..3 {
            let found = claim("'w', 10, ordered => true");
            assert_eq!(found.len(), 10);
            assert!(holds(&format!(
                "count(DISTINCT aggregate_id) = 10 FROM outbox_event WHERE id = ANY ('{{{}}}')",
                found.join(",")
            )));
            run(&format!("SELECT outbox_complete_batch('{{{}}}', 'w')", found.join(",")));
        }
        assert_eq!(claim("'w', 100, ordered => true").len(), 20);
    }

    #[pg_test]
    fn claims_without_an_order_take_any_and_leave_no_mark() {
        let ids = three_of(A);
        assert_eq!(claim("'w'"), ids);
        assert!(holds("bool_and(claimed_in_order IS NULL) FROM outbox_event"));
    }

    #[pg_test]
    fn two_in_flight_of_one_aggregate_are_refused_by_the_table_itself() {
        let [first, second, _] = three_of(A);
        assert_eq!(in_order(), [first]);
        let lease = "status = 'processing', locked_at = now(), locked_by = 'w', claimed_in_order = true";
        assert_eq!(refused(&update_statement(&second, lease)).sqlstate, "23505");
    }
}
