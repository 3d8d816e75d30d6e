//! `outbox_replay`: which dead events come back, and as what.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const TENANT_A: &str = "aaaaaaaa-0000-4000-8000-000000000000";
    const TENANT_B: &str = "bbbbbbbb-0000-4000-8000-000000000000";

    fn replay(arguments: &str) -> i64 {
        one(&format!("outbox_replay({arguments})"))
    }

    fn pending() -> Vec<String> {
        texts("SELECT id FROM outbox_event WHERE status = 'pending' ORDER BY id")
    }

    /// A dead event of a type and tenant that died at a moment of the day.
    fn died(event_type: &str, tenant: Option<&str>, at: &str) -> String {
        let (event_type, dead_at) = (quoted(event_type), format!("'2020-01-01 {at}Z'"));
        let tenant = tenant.map_or("NULL".into(), quoted);
        insert(&[
            ("event_type", &event_type),
            ("tenant_id", &tenant),
            ("status", "'dead'"),
            ("dead_at", &dead_at),
        ])
    }

    #[pg_test]
    fn a_dead_event_comes_back_due_now_with_a_fresh_budget_and_its_history() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Dead);
        let before = columns(&id);
        let now = clock.advance("1 day");
        assert_eq!(replay(""), 1);
        let back = values([
            ("status", "pending"),
            ("available_at", &now),
            ("dead_at", "NULL"),
            ("forgiven_attempts", "1"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), back);
        assert_eq!(before["last_error_code"], "trouble");
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn one_failure_after_a_replay_does_not_kill_the_event_again() {
        let id = only_event(State::NeverClaimed);
        let fail = || {
            assert_eq!(claim("'w'"), [id.as_str()]);
            one::<String>(&format!("outbox_fail('{id}', 'w', 'trouble', 2, '2000-01-01')"))
        };
        assert_eq!([fail(), fail()], ["pending", "dead"]);
        assert_eq!(replay(""), 1);
        assert_eq!([fail(), fail()], ["pending", "dead"], "as many attempts as the first time");
        assert_eq!(columns(&id)["attempt_count"], "4", "the history remains visible");
    }

    #[pg_test]
    fn an_expired_lease_after_a_replay_does_not_kill_the_event_again() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Dead);
        assert_eq!(replay(""), 1);
        assert_eq!(claim("'w', 1, '1 minute', 2"), [id.as_str()]);
        clock.advance("2 minutes");
        assert_eq!(claim("'w', 1, '1 minute', 2"), [id.as_str()], "one of two attempts is used up");
        clock.advance("2 minutes");
        assert!(claim("'w', 1, '1 minute', 2").is_empty());
        assert_eq!(columns(&id)["status"], "dead");
    }

    #[pg_test]
    fn what_died_under_an_ordered_claim_comes_back_to_be_claimed_in_order_again() {
        run("DELETE FROM outbox_event");
        let (first, second) = (enqueue(&[]), enqueue(&[]));
        let claim_in_order = || claim("'w', ordered => true");
        assert_eq!(claim_in_order(), [first.as_str()]);
        run(&format!("SELECT outbox_fail('{first}', 'w', 'trouble', 0)"));
        assert_eq!(claim_in_order(), [second.as_str()], "a dead event blocks nobody");
        assert_eq!(replay(""), 1);
        assert_eq!(claim_in_order(), [""; 0], "one of an aggregate is in flight at a time");
        run(&format!("SELECT outbox_complete('{second}', 'w')"));
        assert_eq!(claim_in_order(), [first.as_str()]);
    }

    #[pg_test]
    fn only_dead_events_come_back() {
        for state in State::ALL.into_iter().filter(|state| *state != State::Dead) {
            let id = only_event(state);
            let before = columns(&id);
            assert_eq!(replay(""), 0, "{state:?}");
            assert_eq!(replay(&format!("ARRAY['{id}']::uuid[]")), 0, "{state:?}");
            assert_eq!(columns(&id), before);
        }
    }

    #[pg_test]
    fn the_filters_combine() {
        let all = || {
            run("DELETE FROM outbox_event");
            [
                died("a", Some(TENANT_A), "01:00"),
                died("a", Some(TENANT_B), "02:00"),
                died("b", Some(TENANT_A), "03:00"),
                died("b", None, "04:00"),
            ]
        };
        let a = format!("tenant_id => '{TENANT_A}'");
        for (arguments, expected) in [
            ("", vec![0, 1, 2, 3]),
            ("event_type => 'a'", vec![0, 1]),
            (&a, vec![0, 2]),
            (&format!("event_type => 'b', {a}"), vec![2]),
            ("event_type => 'c'", vec![]),
        ] {
            let ids = all();
            assert_eq!(replay(arguments), expected.len() as i64, "{arguments}");
            assert_eq!(pending(), expected.iter().map(|at| ids[*at].clone()).collect::<Vec<_>>());
        }
        for (chosen, arguments, expected) in [
            (vec![3, 1, 3], String::new(), vec![1, 3]),
            (vec![0, 1, 2], ", event_type => 'a'".into(), vec![0, 1]),
            (vec![0, 1, 2, 3], format!(", {a}"), vec![0, 2]),
            (vec![0, 3], format!(", event_type => 'b', {a}"), vec![]),
            (vec![], String::new(), vec![]),
        ] {
            let ids = all();
            let named: Vec<_> = chosen.iter().map(|at: &usize| quoted(&ids[*at])).collect();
            let call = format!("ARRAY[{}]::uuid[]{arguments}", named.join(", "));
            assert_eq!(replay(&call), expected.len() as i64, "{call}");
            assert_eq!(pending(), expected.iter().map(|at: &usize| ids[*at].clone()).collect::<Vec<_>>());
        }
    }

    #[pg_test]
    fn those_that_died_first_come_back_first() {
        run("DELETE FROM outbox_event");
        let (late, early) = (died("a", None, "02:00"), died("b", None, "01:00"));
        for arguments in
            ["max_events => 1".to_owned(), format!("ARRAY['{late}', '{early}']::uuid[], max_events => 1")]
        {
            assert_eq!(replay(&arguments), 1, "{arguments}");
            assert_eq!(pending(), [early.as_str()], "{arguments}");
            update(&early, "status = 'dead', dead_at = '2020-01-01 01:00Z'");
        }
        assert_eq!(replay("max_events => 1"), 1);
        assert_eq!(replay("max_events => 1"), 1);
        assert_eq!(replay("max_events => 1"), 0);
    }

    #[pg_test]
    fn a_thousand_at_a_time_unless_told_otherwise() {
        run("DELETE FROM outbox_event");
        run("INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, status)
             SELECT 'order', gen_random_uuid(), 'order.created', '1', 'dead' FROM generate_series(1, 1001)");
        assert_eq!([replay(""), replay(""), replay("")], [1_000, 1, 0]);
    }

    #[pg_test]
    fn a_replay_with_arguments_out_of_range_is_refused() {
        let long = format!("event_type => '{}'", "x".repeat(256));
        for (arguments, sqlstate, parameter) in [
            ("ARRAY[gen_random_uuid(), NULL]", "22004", "event_ids"),
            ("max_events => NULL", "22004", "max_events"),
            ("max_events => 0", "22023", "max_events"),
            ("max_events => -1", "22023", "max_events"),
            ("event_type => ''", "22023", "event_type"),
            (&long, "22023", "event_type"),
            ("tenant_id => '00000000-0000-0000-0000-000000000000'", "22023", "tenant_id"),
        ] {
            assert_refused(&format!("outbox_replay({arguments})"), sqlstate, parameter);
        }
    }

    #[pg_test]
    fn ids_in_more_than_one_dimension_are_ids_all_the_same() {
        let id = only_event(State::Dead);
        assert_eq!(replay(&format!("ARRAY[ARRAY[gen_random_uuid()], ARRAY['{id}']]::uuid[]")), 1);
    }
}
