//! The batch forms that settle, extend and release: set-based, and a lost lease costs one event.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// The calls, each for the events in the array and worker `w`.
    const CALLS: [(&str, &str); 4] = [
        ("outbox_complete_batch", ""),
        ("outbox_fail_batch", ", 'trouble'"),
        ("outbox_extend_batch", ""),
        ("outbox_release_batch", ""),
    ];

    fn array(ids: &[String]) -> String {
        format!("'{{{}}}'::uuid[]", ids.join(","))
    }

    /// The ids that a call returns, sorted.
    fn settled(function: &str, ids: &[String], rest: &str) -> Vec<String> {
        texts(&format!("SELECT s.id FROM {function}({}, 'w'{rest}) AS s (id) ORDER BY 1", array(ids)))
    }

    /// Events leased to `w`, in the order in which they were enqueued.
    fn leased(count: usize) -> Vec<String> {
        run("DELETE FROM outbox_event");
        let ids: Vec<_> = (0..count).map(|_| enqueue(&[])).collect();
        assert_eq!(claim("'w', 1000").len(), count);
        ids
    }

    #[pg_test]
    fn a_batch_settles_what_the_worker_holds_and_leaves_the_rest() {
        for (function, rest) in CALLS {
            let mut ids = leased(6);
            let (of_another, completed, dead) = (ids[1].clone(), ids[3].clone(), ids[4].clone());
            update(&of_another, "locked_by = 'x'");
            run(&format!("SELECT outbox_complete('{completed}', 'w'), outbox_fail('{dead}', 'w', 'e', 0)"));
            ids.push("00000000-0000-7000-8000-00000000dead".into());
            let left = [columns(&of_another), columns(&completed), columns(&dead)];
            let held = vec![ids[0].clone(), ids[2].clone(), ids[5].clone()];
            let returned = settled(function, &ids, rest);
            assert_eq!(returned, held, "{function}");
            assert_eq!([columns(&of_another), columns(&completed), columns(&dead)], left, "{function}");
        }
    }

    #[pg_test]
    fn a_batch_does_to_each_event_what_the_single_call_does() {
        let mut clock = Clock::stopped();
        run("SET LOCAL outbox.backoff_base = 0");
        let singles: [(&str, &str); 3] = [
            ("outbox_complete('{}', 'w', 1)", "outbox_complete_batch({}, 'w', '{1}')"),
            ("outbox_fail('{}', 'w', 'e', 5, NULL, 1)", "outbox_fail_batch({}, 'w', 'e', 5, NULL, '{1}')"),
            ("outbox_fail('{}', 'w', 'e', 1)", "outbox_fail_batch({}, 'w', 'e', 1)"),
        ];
        for (single, batch) in singles {
            let ids = leased(2);
            clock.advance("3 seconds");
            run(&format!("SELECT {}", single.replacen("{}", &ids[0], 1)));
            run(&format!("SELECT {}", batch.replacen("{}", &array(&ids[1..]), 1)));
            let (mut one, mut other) = (columns(&ids[0]), columns(&ids[1]));
            for column in ["id", "available_at", "created_at"] {
                one.remove(column);
                other.remove(column);
            }
            assert_eq!(one, other, "{batch}");
        }
    }

    #[pg_test]
    fn a_batch_fences_each_event_to_its_attempt() {
        for (function, rest) in CALLS {
            let ids = leased(3);
            update(&ids[1], "attempt_count = 7");
            let returned = settled(function, &ids, &format!("{rest}, attempts => '{{1,1,NULL}}'"));
            assert_eq!(returned, [ids[0].clone(), ids[2].clone()], "{function}");
            assert!(holds(&format!(
                "status = 'processing' AND attempt_count = 7 FROM outbox_event WHERE id = '{}'",
                ids[1]
            )));
        }
    }

    #[pg_test]
    fn an_event_that_is_named_twice_is_settled_and_returned_once() {
        for (function, rest) in CALLS {
            let ids = leased(1);
            let twice = [ids[0].clone(), ids[0].clone()];
            let count: i64 = one(&format!("count(*) FROM {function}({}, 'w'{rest})", array(&twice)));
            assert_eq!(count, 1, "{function}");
        }
    }

    #[pg_test]
    fn ten_thousand_events_are_settled_in_one_call() {
        run("DELETE FROM outbox_event");
        run("INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
             SELECT 'order', gen_random_uuid(), 'order.created', '1' FROM generate_series(1, 10000)");
        assert_eq!(claim("'w', 10000").len(), 10_000);
        let all = "ARRAY(SELECT id FROM outbox_event)";
        assert_eq!(one::<i64>(&format!("count(*) FROM outbox_extend_batch({all}, 'w')")), 10_000);
        assert_eq!(
            one::<i64>(&format!("count(*) FROM outbox_fail_batch({all}, 'w', 'e', 9, clock_timestamp())")),
            10_000
        );
        assert_eq!(claim("'w', 10000").len(), 10_000);
        assert_eq!(one::<i64>(&format!("count(*) FROM outbox_release_batch({all}, 'w')")), 10_000);
        assert_eq!(claim("'w', 10000").len(), 10_000);
        assert_eq!(one::<i64>(&format!("count(*) FROM outbox_complete_batch({all}, 'w')")), 10_000);
        assert!(holds("bool_and(status = 'completed') FROM outbox_event"));
    }

    #[pg_test]
    fn an_empty_batch_settles_nothing() {
        for (function, rest) in CALLS {
            assert_eq!(one::<i64>(&format!("count(*) FROM {function}('{{}}', 'w'{rest})")), 0);
        }
    }

    #[pg_test]
    fn arguments_of_a_batch_are_checked_and_nothing_is_settled() {
        for (function, rest) in CALLS {
            let ids = leased(2);
            let before: Vec<_> = ids.iter().map(|id| columns(id)).collect();
            let given = array(&ids);
            assert_refused(&format!("{function}(NULL, 'w'{rest})"), "22004", "event_ids");
            assert_refused(&format!("{function}({given} || NULL::uuid, 'w'{rest})"), "22004", "event_ids");
            assert_refused(&format!("{function}({given}, NULL{rest})"), "22004", "worker_id");
            assert_refused(&format!("{function}({given}, ''{rest})"), "22023", "worker_id");
            for attempts in ["'{1}'", "'{1,1,1}'", "'{}'"] {
                let call = format!("{function}({given}, 'w'{rest}, attempts => {attempts})");
                let refusal = assert_refused(&call, "22023", "attempts");
                assert!(refusal.detail.contains("event_ids 2"), "{refusal:?}");
            }
            assert_eq!(ids.iter().map(|id| columns(id)).collect::<Vec<_>>(), before);
        }
        let ids = leased(1);
        let given = array(&ids);
        assert_refused(&format!("outbox_fail_batch({given}, 'w', NULL)"), "22004", "error_code");
        assert_refused(&format!("outbox_fail_batch({given}, 'w', 'e', -1)"), "22023", "max_attempts");
        assert_refused(
            &format!("outbox_fail_batch({given}, 'w', 'e', 1, 'infinity')"),
            "22023",
            "next_attempt",
        );
        assert_refused(&format!("outbox_release_batch({given}, 'w', '-infinity')"), "22023", "available_at");
    }

    #[pg_test]
    fn an_extended_lease_starts_now_and_nothing_else_changes() {
        let mut clock = Clock::stopped();
        let ids = leased(1);
        let before = columns(&ids[0]);
        let now = clock.advance("4 minutes");
        assert_eq!(settled("outbox_extend_batch", &ids, ""), ids);
        assert_eq!(changes(&before, &ids[0]), values([("locked_at", &now), ("updated_at", &now)]));
        clock.advance("4 minutes");
        assert_eq!(claim("'x'"), [""; 0]);
        clock.advance("2 minutes");
        assert_eq!(claim("'x'"), ids);
        assert_eq!(settled("outbox_extend_batch", &ids, ""), [""; 0]);
    }

    #[pg_test]
    fn a_released_event_is_pending_now_and_its_attempt_forgiven() {
        let mut clock = Clock::stopped();
        let ids = leased(1);
        let before = columns(&ids[0]);
        let now = clock.advance("3 seconds");
        assert_eq!(settled("outbox_release_batch", &ids, ""), ids);
        let released = values([
            ("status", "pending"),
            ("forgiven_attempts", "1"),
            ("available_at", &now),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &ids[0]), released);
        assert_eq!(claim("'w'"), ids);
        let status: String = one(&format!("outbox_fail('{}', 'w', 'e', 2)", ids[0]));
        assert_eq!(status, "pending", "the first of two attempts was forgiven");
    }

    #[pg_test]
    fn an_event_can_be_released_for_a_later_time() {
        let mut clock = Clock::stopped();
        let ids = leased(1);
        let later = clock.after("1 hour");
        assert_eq!(settled("outbox_release_batch", &ids, &format!(", '{later}'")), ids);
        assert_eq!(claim("'w'"), [""; 0]);
        clock.advance("1 hour");
        assert_eq!(claim("'w'"), ids);
    }

    #[pg_test]
    fn events_of_a_failed_batch_are_drawn_apart() {
        let clock = Clock::stopped();
        run("SET LOCAL outbox.backoff_base = '1h'");
        let ids = leased(20);
        run(&format!("SELECT outbox_fail_batch({}, 'w', 'e')", array(&ids)));
        let distinct: i64 = one("count(DISTINCT available_at) FROM outbox_event");
        assert!(distinct > 15, "{distinct}");
        assert!(holds(&format!(
            "bool_and(available_at <= timestamptz '{}') FROM outbox_event",
            clock.after("1 hour")
        )));
    }

    #[pg_test]
    fn a_failed_batch_parts_the_dead_from_those_that_are_tried_again() {
        let ids = leased(2);
        update(&ids[0], "forgiven_attempts = 1");
        let statuses = texts(&format!(
            "SELECT s.status FROM outbox_fail_batch({}, 'w', 'e', 1) s ORDER BY s.id",
            array(&ids)
        ));
        assert_eq!(statuses, ["pending", "dead"]);
    }

    #[pg_test]
    fn with_delete_completed_the_row_goes_and_the_key_is_free() {
        run("SET LOCAL outbox.delete_completed = on");
        run("DELETE FROM outbox_event");
        let first = enqueue(&[("deduplication_key", "'k'")]);
        let second = enqueue(&[]);
        let third = enqueue(&[]);
        assert_eq!(claim("'w'").len(), 3);
        assert_refused(&format!("outbox_complete('{first}', 'w', 9)"), "55000", &first);
        run(&format!("SELECT outbox_complete('{first}', 'w', 1)"));
        assert_refused(&format!("outbox_complete('{first}', 'w')"), "P0002", &first);
        assert_eq!(settled("outbox_complete_batch", &[first.clone(), second.clone()], ""), [second]);
        assert_eq!(texts("SELECT id FROM outbox_event"), [third]);
        assert_ne!(enqueue(&[("deduplication_key", "'k'")]), first);
    }
}
