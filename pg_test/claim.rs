//! `outbox_claim_batch`: which events it takes, in which order, and what becomes of them.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const LEASE: &str = "5 minutes";

    /// A moment so long after (or, with a minus, before) the stopped clock's, as a literal.
    fn moment(clock: &Clock, interval: &str) -> String {
        quoted(&clock.after(interval))
    }

    /// An event whose worker has had it for an hour, in its third attempt, with these columns instead.
    fn hung(clock: &Clock, given: &[(&str, &str)]) -> String {
        let an_hour_ago = moment(clock, "-1 hour");
        let usual = [
            ("status", "'processing'"),
            ("attempt_count", "3"),
            ("locked_by", "'gone'"),
            ("locked_at", &an_hour_ago),
            ("available_at", &an_hour_ago),
        ];
        insert(&instead(&usual, given))
    }

    fn status(id: &str) -> String {
        one(&format!("status::text FROM outbox_event WHERE id = '{id}'"))
    }

    #[pg_test]
    fn events_come_in_the_order_of_available_at_created_at_and_id() {
        let events = [
            ("2001-01-01", "2001-01-03", "9"),
            ("2001-01-02", "2001-01-01", "8"),
            ("2001-01-02", "2001-01-02", "3"),
            ("2001-01-02", "2001-01-02", "7"),
            ("2001-01-03", "2001-01-01", "1"),
        ];
        let id = |n: &str| format!("00000000-0000-7000-8000-00000000000{n}");
        for index in [3, 0, 4, 2, 1] {
            let (available_at, created_at, n) = events[index];
            insert(&[
                ("id", &quoted(&id(n))),
                ("available_at", &quoted(available_at)),
                ("created_at", &quoted(created_at)),
            ]);
        }
        assert_eq!(claim("'w'"), events.map(|(_, _, n)| id(n)));
    }

    #[pg_test]
    fn a_thousand_events_of_one_transaction_come_in_the_order_they_were_enqueued() {
        let enqueued = texts(&format!("SELECT {} FROM generate_series(1, 1000)", enqueue_call(&[])));
        let claimed: Vec<_> = (0..10).flat_map(|_| claim("'w', 100")).collect();
        assert_eq!(claimed, enqueued);
    }

    #[pg_test]
    fn expired_leases_and_pending_events_come_in_one_order_by_the_values_found() {
        let clock = Clock::stopped();
        let third = enqueue(&[("available_at", &moment(&clock, "-10 minutes"))]);
        let second = hung(&clock, &[("available_at", &moment(&clock, "-20 minutes"))]);
        let first = enqueue(&[("available_at", &moment(&clock, "-30 minutes"))]);
        let fourth = hung(&clock, &[("available_at", &moment(&clock, "-5 minutes"))]);
        assert_eq!(claim("'w'"), [first, second, third, fourth]);
    }

    #[pg_test]
    fn an_event_is_claimable_from_its_available_at_on() {
        let mut clock = Clock::stopped();
        let id = enqueue(&[("available_at", &moment(&clock, "1 hour"))]);
        clock.advance("59 minutes 59.999999 seconds");
        assert!(claim("'w'").is_empty());
        clock.advance("1 microsecond");
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn a_lease_expires_when_it_is_older_than_the_lock_timeout() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        for (step, expired) in [("90 seconds", false), ("1 microsecond", true)] {
            clock.advance(step);
            let taken = claim("'x', 10, '90 seconds'");
            assert_eq!(taken == [id.as_str()], expired, "{step}: {taken:?}");
        }
    }

    #[pg_test]
    fn the_lock_timeout_is_the_claimers_and_holds_for_its_own_leases_too() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("2 minutes");
        assert!(claim("'w', 10, '3 minutes'").is_empty());
        assert_eq!(claim("'w', 10, '1 minute'"), [id]);
    }

    #[pg_test]
    fn a_month_of_lock_timeout_is_30_days() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("720 hours");
        assert!(claim("'x', 10, '1 month'").is_empty());
        clock.advance("1 microsecond");
        assert_eq!(claim("'x', 10, '1 month'"), [id]);
    }

    #[pg_test]
    fn defaults_are_a_batch_of_100_and_a_lease_of_5_minutes() {
        let mut clock = Clock::stopped();
        run(&format!("SELECT {} FROM generate_series(1, 101)", enqueue_call(&[])));
        assert_eq!(claim("'w'").len(), 100);
        assert_eq!(claim("'w'").len(), 1);
        clock.advance(LEASE);
        assert!(claim("'w'").is_empty());
        clock.advance("1 microsecond");
        assert_eq!(claim("worker_id => 'w'").len(), 100);
    }

    #[pg_test]
    fn a_batch_is_never_larger_than_asked_and_the_rest_stays() {
        run(&format!("SELECT {} FROM generate_series(1, 7)", enqueue_call(&[])));
        for (batch_size, taken) in [(1, 1), (4, 4), (5, 2), (5, 0)] {
            assert_eq!(claim(&format!("'w', {batch_size}")).len(), taken);
        }
    }

    #[pg_test]
    fn the_largest_batch_takes_everything() {
        run(&format!("SELECT {} FROM generate_series(1, 300)", enqueue_call(&[])));
        assert_eq!(claim("'w', 2147483647").len(), 300);
    }

    #[pg_test]
    fn batch_sizes_below_one_are_refused() {
        enqueue(&[]);
        for (size, sqlstate) in [("0", "22023"), ("-1", "22023"), ("-2147483648", "22023"), ("NULL", "22004")]
        {
            assert_refused(&format!("outbox_claim_batch('w', {size})"), sqlstate, "batch_size");
        }
        assert!(holds("bool_and(status = 'pending') FROM outbox_event"));
    }

    #[pg_test]
    fn lock_timeouts_that_are_not_above_zero_are_refused() {
        enqueue(&[]);
        for (interval, sqlstate) in [
            ("NULL", "22004"),
            ("'0'", "22023"),
            ("'-1 second'", "22023"),
            ("'-1 microsecond'", "22023"),
            ("'-1 month'", "22023"),
            ("'1 month -31 days'", "22023"),
            ("'1 month -30 days'", "22023"),
            ("'1 day -24:00:01'", "22023"),
            ("'-178000000 years'", "22023"),
        ] {
            assert_refused(&format!("outbox_claim_batch('w', 1, {interval})"), sqlstate, "lock_timeout");
        }
        assert!(holds("bool_and(status = 'pending') FROM outbox_event"));
    }

    #[pg_test]
    fn every_lock_timeout_above_zero_is_taken() {
        let timeouts =
            ["1 microsecond", "-1 month 31 days", "2 months -59 days -23:59:59", "178000000 years"];
        for timeout in timeouts {
            let id = enqueue(&[]);
            assert_eq!(claim(&format!("'{timeout}', 1, '{timeout}'")), [id.as_str()], "{timeout}");
            update(&id, "status = 'completed'");
        }
    }

    #[pg_test]
    fn an_endless_lock_timeout_takes_no_lease_over() {
        let mut clock = Clock::stopped();
        only_event(State::Leased);
        clock.advance("10000 years");
        assert!(claim("'x', 1, '178000000 years'").is_empty());
    }

    #[cfg(any(feature = "pg17", feature = "pg18"))]
    #[pg_test]
    fn infinite_lock_timeouts_are_refused() {
        for interval in ["infinity", "-infinity"] {
            let call = format!("outbox_claim_batch('w', 1, '{interval}')");
            assert_refused(&call, "22023", "lock_timeout");
        }
    }

    #[pg_test]
    fn workers_have_names_of_1_to_255_bytes() {
        for worker in ["'w'", "repeat('w', 255)", "repeat('é', 127) || 'w'"] {
            let id = enqueue(&[]);
            assert_eq!(claim(worker), [id.as_str()], "{worker}");
            assert!(holds(&format!("locked_by = {worker} FROM outbox_event WHERE id = '{id}'")));
        }
        for (worker, sqlstate) in
            [("NULL", "22004"), ("''", "22023"), ("repeat('w', 256)", "22023"), ("repeat('é', 128)", "22023")]
        {
            assert_refused(&format!("outbox_claim_batch({worker})"), sqlstate, "worker_id");
        }
    }

    #[pg_test]
    fn further_parameters_can_be_left_at_their_defaults() {
        let id = enqueue(&[]);
        assert_eq!(claim("'w', 10, '1 minute', 5, NULL, NULL, false"), [id]);
    }

    #[pg_test]
    fn a_claimed_row_has_the_events_columns_as_they_are_after_the_claim() {
        let id = enqueue(&[
            ("tenant_id", "'7e000000-0000-4000-8000-000000000001'"),
            ("deduplication_key", "'claimed row'"),
            ("headers", r#"'{"h": [1]}'"#),
        ]);
        let claimed = row("c", "outbox_claim_batch('w') AS c");
        let mut event = columns(&id);
        event.retain(|column, _| claimed.contains_key(column));
        assert_eq!(claimed, event);
        assert_eq!((claimed.len(), claimed["attempt_count"].as_str()), (11, "1"));
    }

    #[pg_test]
    fn a_claimed_row_has_nulls_where_the_event_has_them() {
        enqueue(&[]);
        let nulls = "tenant_id IS NULL AND deduplication_key IS NULL AND headers IS NULL";
        assert!(holds(&format!("{nulls} FROM outbox_claim_batch('w')")));
    }

    #[pg_test]
    fn a_claimed_payload_is_whole_when_it_is_toasted() {
        enqueue(&[("payload", "jsonb_build_object('text', repeat('x', 1000000))")]);
        enqueue(&[("payload", "(SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 30000) AS n)")]);
        let same = "count(*) = 2 AND bool_and(outbox_payload_hash(c.payload) = e.payload_hash)
                    FROM outbox_claim_batch('w') AS c JOIN outbox_event e USING (id)";
        assert!(holds(same));
    }

    #[pg_test]
    fn a_claim_leases_a_pending_event_and_changes_nothing_else() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Failed);
        let before = columns(&id);
        let now = clock.advance("1 minute");
        assert_eq!(claim("'x'"), [id.as_str()]);
        let lease = values([
            ("status", "processing"),
            ("attempt_count", "2"),
            ("locked_at", &now),
            ("locked_by", "x"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), lease);
    }

    #[pg_test]
    fn a_reclaim_counts_the_attempt_and_moves_available_at_to_now() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        let before = columns(&id);
        let now = clock.advance("1 hour");
        assert_eq!(claim("'x'"), [id.as_str()]);
        let lease = values([
            ("attempt_count", "2"),
            ("available_at", &now),
            ("locked_at", &now),
            ("locked_by", "x"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), lease);
    }

    #[pg_test]
    fn an_event_that_is_leased_is_not_claimed_again() {
        only_event(State::Leased);
        assert!(claim("'w'").is_empty());
        assert!(claim("'x'").is_empty());
    }

    #[pg_test]
    fn finished_events_are_never_claimed() {
        let mut clock = Clock::stopped();
        for state in [State::Completed, State::Dead] {
            only_event(state);
            clock.advance("1 year");
            assert!(claim("'x'").is_empty(), "{state:?}");
        }
    }

    #[pg_test]
    fn events_that_hang_let_fresh_ones_have_their_turn() {
        let mut clock = Clock::stopped();
        let yesterday = moment(&clock, "-1 day");
        let hanging: Vec<_> = (0..5).map(|_| enqueue(&[("available_at", &yesterday)])).collect();
        let fresh: Vec<_> = (0..5).map(|_| enqueue(&[])).collect();
        assert_eq!(claim("'w', 5"), hanging);
        clock.advance("1 hour");
        assert_eq!(claim("'w', 5"), hanging, "the first reclaim still has the dates of yesterday");
        clock.advance("1 hour");
        assert_eq!(claim("'w', 5"), fresh);
    }

    #[pg_test]
    fn a_lease_that_expires_after_max_attempts_ends_in_death() {
        let clock = Clock::stopped();
        for (attempts, max_attempts, expected) in [
            ("1", 0, "dead"),
            ("1", 1, "dead"),
            ("1", 2, "processing"),
            ("3", 3, "dead"),
            ("3", 4, "processing"),
            ("3", 2, "dead"),
        ] {
            let id = hung(&clock, &[("attempt_count", attempts)]);
            let claimed = claim(&format!("'w', max_attempts => {max_attempts}"));
            assert_eq!(claimed.is_empty(), expected == "dead", "{attempts} of {max_attempts}");
            assert_eq!(status(&id), expected, "{attempts} of {max_attempts}");
        }
    }

    #[pg_test]
    fn forgiven_attempts_do_not_count_toward_max_attempts_at_the_claim() {
        let clock = Clock::stopped();
        let given = [("attempt_count", "30"), ("forgiven_attempts", "28")];
        let id = hung(&clock, &given);
        assert_eq!(claim("'w', max_attempts => 3"), [id]);
        let spent = hung(&clock, &given);
        assert!(claim("'w', max_attempts => 2").is_empty());
        assert_eq!(status(&spent), "dead");
    }

    #[pg_test]
    fn a_pending_event_is_claimed_however_many_attempts_it_has_had() {
        let id = insert(&[("attempt_count", "500")]);
        assert_eq!(claim("'w', max_attempts => 0"), [id]);
    }

    #[pg_test]
    fn a_negative_max_attempts_is_refused_at_the_claim() {
        let clock = Clock::stopped();
        let id = hung(&clock, &[]);
        for limit in ["-1", "-2147483648"] {
            let call = format!("outbox_claim_batch('w', max_attempts => {limit})");
            let refusal = assert_refused(&call, "22023", "max_attempts");
            assert_eq!(refusal.detail, format!("max_attempts is {limit}."));
        }
        assert_eq!(status(&id), "processing");
    }

    #[pg_test]
    fn the_claim_takes_max_attempts_from_the_setting_unless_it_is_given() {
        let clock = Clock::stopped();
        for (setting, argument, expected) in [
            ("3", "NULL", "dead"),
            ("4", "NULL", "processing"),
            ("0", "NULL", "dead"),
            ("3", "4", "processing"),
            ("4", "3", "dead"),
        ] {
            run(&format!("SET LOCAL outbox.max_attempts = {setting}"));
            let id = hung(&clock, &[]);
            claim(&format!("'w', max_attempts => {argument}"));
            assert_eq!(status(&id), expected, "setting {setting}, argument {argument}");
        }
    }

    #[pg_test]
    fn a_lease_dies_after_25_attempts_by_default() {
        let clock = Clock::stopped();
        let alive = hung(&clock, &[("attempt_count", "24")]);
        let spent = hung(&clock, &[("attempt_count", "25")]);
        assert_eq!(claim("'w'"), [alive]);
        assert_eq!(status(&spent), "dead");
    }

    #[pg_test]
    fn a_buried_event_says_lease_expired_and_keeps_its_available_at_and_attempts() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        let before = columns(&id);
        let now = clock.advance("1 hour");
        assert!(claim("'w', max_attempts => 1").is_empty());
        let burial = values([
            ("status", "dead"),
            ("dead_at", &now),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("last_error_code", "lease_expired"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), burial);
    }

    #[pg_test]
    fn a_heap_of_spent_events_does_not_keep_a_claim_from_fresh_ones() {
        let clock = Clock::stopped();
        let spent: Vec<_> = (0..21).map(|_| hung(&clock, &[])).collect();
        let fresh: Vec<_> = (0..2).map(|_| enqueue(&[])).collect();
        assert_eq!(claim("'w', 2, max_attempts => 3"), fresh);
        assert!(spent.iter().all(|id| status(id) == "dead"));
    }

    #[pg_test]
    fn a_batch_is_full_although_spent_events_lie_between_fresh_ones() {
        let clock = Clock::stopped();
        let minutes_ago = |n: i32| moment(&clock, &format!("-{n} minutes"));
        let mut fresh = Vec::new();
        for n in (10..40).rev() {
            if n % 3 == 0 {
                fresh.push(enqueue(&[("available_at", &minutes_ago(n))]));
            } else {
                hung(&clock, &[("available_at", &minutes_ago(n))]);
            }
        }
        assert_eq!(claim("'w', 10, max_attempts => 3"), fresh);
    }

    #[pg_test]
    fn a_claim_in_a_select_list_returns_whole_rows() {
        let ids: Vec<_> = (0..3).map(|_| enqueue(&[])).collect();
        assert_eq!(
            texts("SELECT (c.event).id FROM (SELECT outbox_claim_batch('w', 2) AS event) AS c"),
            ids[..2]
        );
        assert_eq!(texts("SELECT (outbox_claim_batch('w', 2)).id"), ids[2..]);
        assert!(holds("bool_and(status = 'processing' AND attempt_count = 1) FROM outbox_event"));
    }

    #[pg_test]
    fn a_claim_that_is_rolled_back_leaves_the_event_as_it_was() {
        let id = only_event(State::NeverClaimed);
        let before = columns(&id);
        run("DO $$ BEGIN PERFORM outbox_claim_batch('w'); RAISE EXCEPTION 'undo';
             EXCEPTION WHEN raise_exception THEN END $$");
        assert_eq!(columns(&id), before);
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn an_empty_outbox_gives_no_row() {
        assert!(claim("'w'").is_empty());
        assert!(claim("'w', 2147483647").is_empty());
    }

    #[pg_test]
    fn a_row_that_was_written_past_the_guard_does_not_stop_the_queue() {
        for (column, value) in [
            ("attempt_count", "2147483647"),
            ("attempt_count", "-5"),
            ("forgiven_attempts", "-2147483648"),
            ("forgiven_attempts", "10"),
            ("available_at", "'-infinity'"),
            ("created_at", "'infinity'"),
            ("created_at", "'-infinity'"),
            ("updated_at", "'infinity'"),
            ("tenant_id", "'00000000-0000-0000-0000-000000000000'"),
        ] {
            run("SET LOCAL session_replication_role = replica");
            let hash = ("payload_hash", "repeat('0', 64)");
            let unsound = insert(&[hash, (column, value)]);
            run("SET LOCAL session_replication_role = origin");
            let sound = enqueue(&[]);
            let mut claimed = claim("'w', 10");
            claimed.sort();
            let mut both = [unsound, sound];
            both.sort();
            assert_eq!(claimed, both, "{column} = {value}");
            for id in &both {
                run(&format!("SELECT outbox_complete('{id}', 'w')"));
            }
        }
    }

    #[pg_test]
    fn an_event_with_the_most_attempts_does_not_stop_the_queue() {
        insert(&[("attempt_count", "1000000000"), ("available_at", "'2001-01-01'")]);
        let fresh = enqueue(&[]);
        assert!(claim("'w'").contains(&fresh));
    }
}
