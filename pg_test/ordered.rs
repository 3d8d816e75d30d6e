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

    /// As after work that took longer than a session waits for its own next claim.
    fn long_since() {
        crate::clock::test_clock::skip(std::time::Duration::from_secs(1));
    }

    fn available_at(id: &str) -> String {
        columns(id)["available_at"].clone()
    }

    #[pg_test]
    fn a_successor_that_this_session_claims_itself_is_not_written_to() {
        let [first, second, _] = three_of(A);
        let before = available_at(&second);
        assert_eq!(in_order_at_once(), [first.as_str()]);
        complete(&first);
        assert_eq!(in_order_at_once(), [second.as_str()]);
        assert_eq!(available_at(&second), before);
    }

    #[pg_test]
    fn a_session_that_settles_and_does_not_claim_hands_the_successors_on() {
        let [first, second, _] = three_of(A);
        let other = of(B);
        assert_eq!(in_order_at_once(), [first.clone(), other.clone()]);
        let before = available_at(&second);
        complete(&first);
        assert_eq!(available_at(&second), before);
        long_since();
        complete(&other);
        assert!(available_at(&second) > before);
    }

    #[pg_test]
    fn a_successor_of_another_type_is_handed_on_to_whom_it_is_for() {
        let typed = |event_type: &str| enqueue(&[("aggregate_id", A), ("event_type", &quoted(event_type))]);
        let (created, paid) = (typed("created"), typed("paid"));
        let claim_of = |event_type: &str| {
            claim_at_once(&format!("'w', only_event_types => '{{{event_type}}}', ordered => true"))
        };
        assert_eq!(claim_of("created"), [created.as_str()]);
        assert_eq!(claim_of("paid"), nothing());
        complete(&created);
        let before = available_at(&paid);
        assert_eq!(claim_of("created"), nothing());
        assert!(available_at(&paid) > before);
        assert_eq!(claim_of("paid"), [paid.as_str()]);
    }

    #[pg_test]
    fn what_an_aborted_transaction_settled_has_no_successor() {
        let [first, _, _] = three_of(A);
        assert_eq!(in_order(), [first.as_str()]);
        run(&format!(
            "DO $$ BEGIN PERFORM outbox_complete('{first}', 'w'); RAISE 'back'; EXCEPTION WHEN raise_exception THEN NULL; END $$"
        ));
        assert_eq!(columns(&first)["status"], "processing");
        assert_eq!(in_order(), nothing());
    }

    #[pg_test]
    fn a_long_chain_of_settled_events_ends_in_the_next() {
        run("DELETE FROM outbox_event");
        let ids: Vec<_> = (0..600).map(|_| of(A)).collect();
        for id in &ids {
            assert_eq!(in_order_at_once(), [id.as_str()]);
            complete(id);
        }
        assert_eq!(in_order(), nothing());
    }

    #[pg_test]
    fn a_full_batch_of_successors_leaves_room_for_others() {
        let mut clock = Clock::stopped();
        run(&format!(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
             SELECT 'order', {A}, 'order.created', '1' FROM generate_series(1, 20)"
        ));
        assert_eq!(in_order_at_once().len(), 1);
        clock.advance("1 minute");
        let other = of(B);
        let mut turns = 0;
        while columns(&other)["status"] == "pending" {
            run(
                "SELECT outbox_complete_batch(ARRAY(SELECT id FROM outbox_event WHERE status = 'processing'), 'w')",
            );
            assert_eq!(claim_at_once("'w', 1, ordered => true").len(), 1);
            turns += 1;
            assert!(turns < 5, "the other aggregate waits for ever");
        }
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
