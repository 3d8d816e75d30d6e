//! `outbox.max_payload_bytes`.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    fn limit(bytes: &str) {
        run(&format!("SET LOCAL outbox.max_payload_bytes = {bytes}"));
    }

    /// A payload of many bytes that compresses well, and what it has uncompressed.
    const LARGE: &str = "to_jsonb(repeat('x', 100000))";

    /// Without the header of four bytes that every value has.
    fn size(payload: &str) -> i64 {
        one(&format!("pg_column_size({payload})::bigint - 4"))
    }

    fn enqueue_with(payload: &str) -> String {
        format!("SELECT {}", enqueue_call(&[("payload", payload)]))
    }

    fn assert_too_large(statement: &str) -> Refusal {
        let before = events();
        let refusal = refused(statement);
        assert_eq!(refusal.sqlstate, "54000", "{refusal:?}");
        assert!(!refusal.hint.is_empty(), "{refusal:?}");
        assert_eq!(events(), before);
        refusal
    }

    #[pg_test]
    fn zero_is_no_limit() {
        run(&enqueue_with("to_jsonb(repeat('x', 10000000))"));
        limit("0");
        run(&enqueue_with("to_jsonb(repeat('x', 10000000))"));
    }

    #[pg_test]
    fn a_payload_of_the_limit_is_accepted_and_one_byte_more_is_not() {
        for payload in [LARGE, "'{}'::jsonb", "'1'::jsonb", "'{\"a\": [1, 2.5, null, \"b\"]}'::jsonb"] {
            let size = size(payload);
            limit(&size.to_string());
            run(&enqueue_with(payload));
            run(&insert_statement(&[("payload", payload)]));
            limit(&(size - 1).to_string());
            for statement in [enqueue_with(payload), insert_statement(&[("payload", payload)])] {
                let refusal = assert_too_large(&statement);
                assert!(refusal.detail.contains(&format!("{size} bytes")), "{refusal:?}");
                assert!(refusal.detail.contains(&format!("{} bytes", size - 1)), "{refusal:?}");
            }
        }
    }

    #[pg_test]
    fn the_uncompressed_payload_counts_wherever_it_is_stored() {
        let size = size(LARGE);
        run(&format!("CREATE TEMP TABLE stored (payload jsonb); INSERT INTO stored VALUES ({LARGE})"));
        run(&format!(
            "CREATE TEMP TABLE external (payload jsonb);
             ALTER TABLE external ALTER payload SET STORAGE EXTERNAL; INSERT INTO external VALUES ({LARGE})"
        ));
        assert!(holds("pg_column_size(payload) < 10000 FROM stored"));
        for table in ["stored", "external"] {
            let payload = format!("(SELECT payload FROM {table})");
            limit(&size.to_string());
            run(&enqueue_with(&payload));
            limit(&(size - 1).to_string());
            assert_too_large(&enqueue_with(&payload));
        }
    }

    #[pg_test]
    fn it_holds_for_a_payload_that_an_update_changes_and_for_no_other_update() {
        let id = insert(&[("payload", LARGE)]);
        limit("30");
        assert_too_large(&update_statement(&id, "payload = payload || '[1]'"));
        update(&id, "headers = '{}'");
        assert_eq!(claim("'w'"), [id.as_str()]);
        run(&format!("SELECT outbox_complete('{id}', 'w')"));
        update(&id, "payload = '1'");
    }

    #[pg_test]
    fn a_repeated_key_is_held_to_it_as_well() {
        let call = format!("SELECT {}", enqueue_call(&[("payload", LARGE), ("deduplication_key", "'k'")]));
        run(&call);
        limit("30");
        assert_too_large(&call);
    }

    #[pg_test]
    fn a_batch_with_one_payload_over_it_is_refused_as_a_whole() {
        let event = |payload: &str| {
            format!(
                "jsonb_build_object('aggregate_type', 'order', 'aggregate_id', gen_random_uuid(),
                                        'event_type', 'order.created', 'payload', {payload})"
            )
        };
        let batch = |payload: &str| {
            let small = event("'1'::jsonb");
            format!(
                "SELECT * FROM outbox_enqueue_batch(jsonb_build_array({small}, {}, {small}))",
                event(payload)
            )
        };
        let size = size(LARGE);
        limit(&size.to_string());
        run(&batch(LARGE));
        limit(&(size - 1).to_string());
        let refusal = assert_too_large(&batch(LARGE));
        assert!(refusal.detail.contains(&format!("{size} bytes")), "{refusal:?}");
    }

    #[pg_test]
    fn an_insert_that_brings_its_hash_is_taken_as_it_is() {
        limit("30");
        insert(&[("payload", LARGE), ("payload_hash", &format!("outbox_payload_hash({LARGE})"))]);
    }

    #[pg_test]
    fn the_public_hash_and_the_headers_are_not_held_to_it() {
        limit("30");
        run(&format!("SELECT outbox_payload_hash({LARGE})"));
        run(&format!(
            "SELECT {}",
            enqueue_call(&[("payload", "'1'"), ("headers", "'{\"trace\": \"0123456789abcdef\"}'")])
        ));
    }

    #[pg_test]
    fn it_is_set_in_bytes_or_with_a_unit() {
        for (given, shown) in [("1024", "1kB"), ("'1MB'", "1MB"), ("'1000B'", "1000B"), ("0", "0")] {
            limit(given);
            assert_eq!(one::<String>("current_setting('outbox.max_payload_bytes')"), shown);
        }
    }

    #[pg_test]
    fn only_a_superuser_sets_it() {
        limit("20");
        run("CREATE ROLE outbox_test_nobody; SET LOCAL ROLE outbox_test_nobody");
        assert_eq!(refused("SET LOCAL outbox.max_payload_bytes = 0").sqlstate, "42501");
        assert_eq!(one::<String>("current_setting('outbox.max_payload_bytes')"), "20B");
        run("RESET ROLE; GRANT SET ON PARAMETER outbox.max_payload_bytes TO outbox_test_nobody;
             SET LOCAL ROLE outbox_test_nobody");
        limit("30");
    }
}
