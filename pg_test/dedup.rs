//! Deduplication: one event for each key of a tenant and event type.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const TENANT: &str = "'7e000000-0000-4000-8000-000000000001'";
    const OTHER_TENANT: &str = "'7e000000-0000-4000-8000-000000000002'";
    const OTHER_AGGREGATE: &str = "'0dd00000-0000-4000-8000-000000000002'";

    /// A key that no test in another backend has at the same time.
    fn key() -> String {
        quoted(&format!("key of {}", one::<i32>("pg_backend_pid()")))
    }

    /// Enqueues an event with the test's key.
    fn once(arguments: &[(&str, &str)]) -> String {
        enqueue(&with_key(&key(), arguments))
    }

    /// The error with which an event with the test's key is refused.
    fn conflict(arguments: &[(&str, &str)]) -> Refusal {
        let call = enqueue_call(&with_key(&key(), arguments));
        assert_refused(&call, "23505", "deduplication_key was used before with")
    }

    fn with_key<'a>(key: &'a str, arguments: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [("deduplication_key", key)].iter().chain(arguments).copied().collect()
    }

    #[pg_test]
    fn a_key_with_an_equal_payload_gives_the_first_id_however_the_payload_is_written() {
        let first = once(&[("payload", r#"'{"a": 1, "b": [1.0, "é"]}'"#)]);
        for again in [
            r#"{"a":1,"b":[1.0,"é"]}"#,
            r#" { "b" : [ 1, "é" ] , "a" : 1.000 } "#,
            r#"{"a": 7, "b": [1e0, "\u00e9"], "a": 10e-1}"#,
        ] {
            assert_eq!(once(&[("payload", &quoted(again))]), first, "{again}");
        }
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn a_duplicate_leaves_the_first_event_as_it_is() {
        let mut clock = Clock::stopped();
        let first = once(&[("headers", r#"'{"first": true}'"#)]);
        let before = columns(&first);
        clock.advance("1 hour");
        let again = once(&[("headers", r#"'{"first": false}'"#), ("available_at", "'2040-01-01'")]);
        assert_eq!(again, first);
        assert_eq!(columns(&first), before);
    }

    #[pg_test]
    fn events_without_a_key_are_never_duplicates() {
        assert_ne!(enqueue(&[]), enqueue(&[]));
        assert_eq!(events(), 2);
    }

    #[pg_test]
    fn a_key_that_is_repeated_in_one_statement_gives_one_event() {
        let call = enqueue_call(&with_key(&key(), &[]));
        let ids = texts(&format!("SELECT {call} FROM generate_series(1, 50)"));
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!((ids.len(), events()), (50, 1));
    }

    #[pg_test]
    fn a_key_with_another_payload_is_refused() {
        let first = once(&[]);
        for payload in
            [r#"{"number": 2}"#, r#"{"number": "1"}"#, "null", r#"{"number": 1.0000000000000000000000001}"#]
        {
            let refusal = conflict(&[("payload", &quoted(payload))]);
            assert_eq!(refusal.message, "deduplication_key was used before with another payload");
            assert_eq!(refusal.detail, format!("The key is held by event {first}."));
        }
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn a_key_with_another_aggregate_is_refused() {
        let first = once(&[]);
        for aggregate in [
            &[("aggregate_type", "'invoice'")][..],
            &[("aggregate_id", OTHER_AGGREGATE)],
            &[("aggregate_type", "'Order'")],
            &[("aggregate_type", "'invoice'"), ("aggregate_id", OTHER_AGGREGATE)],
        ] {
            let refusal = conflict(aggregate);
            assert_eq!(refusal.message, "deduplication_key was used before with another aggregate");
            assert_eq!(refusal.detail, format!("The key is held by event {first}."));
        }
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn a_key_with_another_payload_and_aggregate_is_refused_for_both() {
        let first = once(&[]);
        let refusal = conflict(&[("payload", "'[]'"), ("aggregate_id", OTHER_AGGREGATE)]);
        let both = "deduplication_key was used before with another payload and another aggregate";
        assert_eq!(refusal.message, both);
        assert_eq!(refusal.detail, format!("The key is held by event {first}."));
    }

    #[pg_test]
    fn a_conflict_leaves_the_first_event_as_it_is() {
        let first = once(&[]);
        let before = columns(&first);
        conflict(&[("payload", "'[]'")]);
        assert_eq!(columns(&first), before);
    }

    #[pg_test]
    fn the_null_tenant_is_one_tenant() {
        assert_eq!(once(&[("tenant_id", "NULL")]), once(&[]));
        conflict(&[("tenant_id", "NULL"), ("payload", "'[]'")]);
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn another_tenant_has_keys_of_its_own() {
        let of_tenants = || {
            [("NULL", "'1'"), (TENANT, "'2'"), (OTHER_TENANT, "'3'")]
                .map(|(tenant, payload)| once(&[("tenant_id", tenant), ("payload", payload)]))
        };
        assert_eq!(of_tenants(), of_tenants());
        assert_eq!(events(), 3);
    }

    #[pg_test]
    fn another_event_type_has_keys_of_its_own() {
        let created = once(&[]);
        let paid = once(&[("event_type", "'order.paid'"), ("payload", "'[]'")]);
        assert_ne!(created, paid);
        assert_eq!(once(&[]), created);
    }

    #[pg_test]
    fn keys_are_compared_byte_by_byte() {
        let suffix: i32 = one("pg_backend_pid()");
        let ids = ["k", "K", "k ", "\u{e9}", "e\u{301}"]
            .map(|key| enqueue(&[("deduplication_key", &quoted(&format!("{suffix}{key}")))]));
        assert_eq!(events(), ids.len() as i64);
    }

    #[pg_test]
    fn the_longest_names_and_an_incompressible_key_fit_the_index() {
        let key = "(SELECT left(string_agg(md5(n::text || pg_backend_pid()), ''), 1024)
                    FROM generate_series(1, 40) AS n)";
        let arguments =
            [("deduplication_key", key), ("event_type", "repeat('x', 255)"), ("tenant_id", TENANT)];
        assert_eq!(enqueue(&arguments), enqueue(&arguments));
    }

    /// Checks that the key of an event in this state gives its id, and is refused to another payload.
    fn assert_key_is_kept(state: State) {
        let id = only_event(state);
        update(&id, &format!("deduplication_key = {}", key()));
        let before = columns(&id);
        assert_eq!(once(&[]), id, "{state:?}");
        conflict(&[("payload", "'[]'")]);
        assert_eq!(columns(&id), before, "{state:?}");
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn a_key_is_kept_in_every_state_also_after_completion_and_death() {
        State::ALL.into_iter().for_each(assert_key_is_kept);
    }

    #[pg_test]
    fn a_key_is_free_again_once_its_event_is_deleted() {
        let first = once(&[]);
        run("DELETE FROM outbox_event");
        assert_ne!(once(&[("payload", "'[]'")]), first);
    }

    #[pg_test]
    fn a_key_is_free_again_once_its_savepoint_is_rolled_back() {
        run(&format!(
            "DO $$ BEGIN PERFORM {}; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN END $$",
            enqueue_call(&with_key(&key(), &[]))
        ));
        once(&[("payload", "'[]'")]);
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn an_event_that_was_written_by_hand_holds_its_key_too() {
        let id = insert(&[("deduplication_key", &key())]);
        assert_eq!(once(&[]), id);
        conflict(&[("payload", "'[]'")]);
    }

    #[pg_test]
    fn a_conflict_tells_no_payload_key_or_tenant() {
        let arguments = |payload| {
            vec![
                ("tenant_id", TENANT),
                ("aggregate_type", "'secret_type'"),
                ("deduplication_key", "'secret_key'"),
                ("payload", payload),
                ("headers", r#"'{"secret_header": 1}'"#),
            ]
        };
        let id = enqueue(&arguments("'\"secret_first\"'"));
        for (name, value) in [("payload", "'\"secret_second\"'"), ("aggregate_type", "'secret_other'")] {
            let mut other = arguments("'\"secret_first\"'");
            other.retain(|(argument, _)| *argument != name);
            other.push((name, value));
            let refusal = assert_refused(&enqueue_call(&other), "23505", "deduplication_key");
            assert!(!refusal.mentions("secret") && !refusal.mentions("7e000000"), "{refusal:?}");
            assert!(refusal.mentions(&id));
        }
    }

    /// Makes a producer who by row-level security sees and writes events of orders only.
    fn create_producer_of_orders() {
        run("ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
             CREATE POLICY orders ON outbox_event USING (aggregate_type = 'order');
             CREATE ROLE outbox_test_producer;
             GRANT SELECT, INSERT ON outbox_event TO outbox_test_producer;
             GRANT EXECUTE ON FUNCTION outbox_enqueue TO outbox_test_producer");
    }

    #[pg_test]
    fn a_key_held_by_an_event_that_row_level_security_hides_is_refused() {
        create_producer_of_orders();
        let seen = once(&[]);
        let hidden = once(&[("aggregate_type", "'invoice'"), ("event_type", "'paid'")]);
        run("SET LOCAL ROLE outbox_test_producer");
        assert_eq!(once(&[]), seen);
        let call = enqueue_call(&with_key(&key(), &[("event_type", "'paid'")]));
        let refusal = assert_refused(&call, "42501", "row-level security hides");
        assert!(!refusal.mentions(&hidden) && !refusal.mentions("invoice"), "{refusal:?}");
    }
}
