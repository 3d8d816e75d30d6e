//! `outbox_enqueue`: what it takes, what it refuses, and the row that it writes.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// Checks that a value is refused for an argument, and that nothing is written.
    fn assert_argument_refused(argument: &str, value: &str, sqlstate: &str) -> Refusal {
        let refusal = assert_refused(&enqueue_call(&[(argument, value)]), sqlstate, argument);
        assert_eq!(events(), 0, "{argument} => {value} must write nothing");
        refusal
    }

    #[pg_test]
    fn enqueue_refuses_null_for_each_required_argument() {
        for argument in ["aggregate_type", "aggregate_id", "event_type", "payload"] {
            let refusal = assert_argument_refused(argument, "NULL", "22004");
            assert_eq!(refusal.message, format!("{argument} must not be null"));
        }
    }

    #[pg_test]
    fn enqueue_refuses_a_call_without_arguments() {
        assert_refused("outbox_enqueue()", "22004", "aggregate_type");
        let all_null = "outbox_enqueue(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
        assert_refused(all_null, "22004", "aggregate_type");
    }

    #[pg_test]
    fn enqueue_takes_null_for_each_optional_argument() {
        for argument in ["tenant_id", "deduplication_key", "available_at", "headers"] {
            enqueue(&[(argument, "NULL")]);
        }
        assert_eq!(events(), 4);
    }

    #[pg_test]
    fn enqueue_takes_names_of_1_to_255_bytes() {
        for name in ["'a'", "repeat('a', 255)", "repeat('é', 127) || 'a'"] {
            let id = enqueue(&[("aggregate_type", name), ("event_type", name)]);
            let stored = format!("aggregate_type = {name} AND event_type = {name}");
            assert!(holds(&format!("{stored} FROM outbox_event WHERE id = '{id}'")), "{name}");
        }
    }

    #[pg_test]
    fn enqueue_refuses_names_that_are_empty_or_longer_than_255_bytes() {
        for argument in ["aggregate_type", "event_type"] {
            for (name, found) in [
                ("''", "empty"),
                ("repeat('a', 256)", "256 bytes long"),
                ("repeat('é', 128)", "256 bytes long"),
                ("repeat('a', 1000000)", "1000000 bytes long"),
            ] {
                let refusal = assert_argument_refused(argument, name, "22023");
                assert_eq!(refusal.detail, format!("{argument} is {found}."));
                assert_eq!(refusal.hint, "Names have 1 to 255 bytes.");
            }
        }
    }

    #[pg_test]
    fn enqueue_takes_keys_of_1_to_1024_bytes() {
        for key in ["'a'", "repeat('a', 1024)", "repeat('€', 341) || 'a'"] {
            let key = format!("{key} || ''");
            let id = enqueue(&[("deduplication_key", &key)]);
            let stored = format!("deduplication_key = {key} FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&stored), "{key}");
        }
    }

    #[pg_test]
    fn enqueue_refuses_keys_that_are_empty_or_longer_than_1024_bytes() {
        let incompressible = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) AS n)";
        for (key, found) in [
            ("''", "empty"),
            ("repeat('a', 1025)", "1025 bytes long"),
            ("repeat('€', 341) || 'é'", "1025 bytes long"),
            (incompressible, "12800 bytes long"),
        ] {
            let refusal = assert_argument_refused("deduplication_key", key, "22023");
            assert_eq!(refusal.detail, format!("deduplication_key is {found}."));
        }
    }

    #[pg_test]
    fn enqueue_refuses_the_all_zero_tenant() {
        let zero = "'00000000-0000-0000-0000-000000000000'";
        let refusal = assert_argument_refused("tenant_id", zero, "22023");
        assert_eq!(refusal.detail, "tenant_id is the all-zero uuid.");
        enqueue(&[("tenant_id", "'00000000-0000-0000-0000-000000000001'")]);
    }

    #[pg_test]
    fn enqueue_refuses_an_infinite_available_at() {
        for moment in ["'infinity'", "'-infinity'"] {
            assert_argument_refused("available_at", moment, "22023");
        }
    }

    #[pg_test]
    fn enqueue_keeps_any_finite_available_at() {
        for moment in ["4713-01-01 00:00:00+00 BC", "1970-01-01", "294276-12-31 23:59:59.999999+00"] {
            let id = enqueue(&[("available_at", &quoted(moment))]);
            let kept = format!("available_at = '{moment}' FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&kept), "{moment}");
        }
    }

    #[pg_test]
    fn enqueue_refuses_headers_that_are_no_object() {
        for headers in ["[]", r#"[{"a": 1}]"#, "1", r#""a""#, "true", "null"] {
            let refusal = assert_argument_refused("headers", &quoted(headers), "22023");
            assert_eq!(refusal.detail, "headers is no JSON object.");
        }
    }

    #[pg_test]
    fn enqueue_keeps_headers_that_are_an_object() {
        for headers in ["'{}'", r#"'{"traceparent": "00-ab-01", "n": [1, null]}'"#] {
            let id = enqueue(&[("headers", headers)]);
            let kept = format!("headers = {headers} FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&kept), "{headers}");
        }
    }

    #[pg_test]
    fn enqueue_reads_headers_that_are_compressed_in_a_table() {
        run("CREATE TEMP TABLE sent AS
             SELECT jsonb_build_object('a', repeat('x', 100000)) AS object,
                    jsonb_build_array(repeat('x', 100000)) AS list");
        enqueue(&[("headers", "(SELECT object FROM sent)")]);
        assert!(holds("headers = (SELECT object FROM sent) FROM outbox_event"));
        let list = enqueue_call(&[("headers", "(SELECT list FROM sent)")]);
        assert_refused(&list, "22023", "headers");
    }

    #[pg_test]
    fn enqueue_takes_every_json_value_as_a_payload_and_json_null_is_one() {
        for payload in ["null", "true", "0", "-1.5e300", r#""""#, r#""text""#, "[]", "{}", "[null]"] {
            let id = enqueue(&[("payload", &quoted(payload))]);
            let stored = format!("payload = '{payload}' FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&stored), "{payload}");
        }
    }

    #[pg_test]
    fn enqueue_keeps_payloads_of_every_size_and_every_digit() {
        for payload in [
            "jsonb_build_object('text', repeat('é\\\"\n', 3000))",
            "jsonb_build_object('text', repeat('x', 1000000))",
            "(SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 30000) AS n)",
            r#"'{"big": 1E400, "long": 0.1234567890123456789012345678901234567890, "u": 18446744073709551616}'"#,
        ] {
            let id = enqueue(&[("payload", payload)]);
            let kept = "payload_hash = outbox_payload_hash(payload)";
            let same = format!("payload = {payload} AND {kept} FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&same), "{payload}");
        }
    }

    #[pg_test]
    fn enqueue_takes_its_arguments_by_position_in_the_order_of_the_origin() {
        let id: String = one(r#"outbox_enqueue('7e000000-0000-4000-8000-000000000001', 'order',
            '0dd00000-0000-4000-8000-000000000002', 'order.paid', 'positional', '{"a": 1}',
            '2031-01-01 00:00Z', '{"h": 2}')::text"#);
        let event = columns(&id);
        for (column, value) in [
            ("tenant_id", "7e000000-0000-4000-8000-000000000001"),
            ("aggregate_type", "order"),
            ("aggregate_id", "0dd00000-0000-4000-8000-000000000002"),
            ("event_type", "order.paid"),
            ("deduplication_key", "positional"),
            ("payload", r#"{"a": 1}"#),
            ("available_at", "2031-01-01T00:00:00+00:00"),
            ("headers", r#"{"h": 2}"#),
        ] {
            assert_eq!(event[column], value, "{column}");
        }
    }

    #[pg_test]
    fn enqueue_takes_untyped_parameters_and_mixed_notation() {
        run("PREPARE enqueue AS SELECT outbox_enqueue($1, $2, $3, $4, payload => $5, headers => $6)");
        run(
            r#"EXECUTE enqueue(NULL, 'order', '0dd00000-0000-4000-8000-000000000001', 'order.paid', '1', '{}')"#,
        );
        assert!(holds("payload = '1' AND headers = '{}' FROM outbox_event"));
    }

    #[pg_test]
    fn an_enqueued_event_is_pending_due_now_and_has_the_hash_of_its_payload() {
        let clock = Clock::stopped();
        let now = clock.now();
        let id = enqueue(&[]);
        let hash = "3d6a916e86efba9105154ea95dda8d8da47df173d931c23e7a346c7babd81a3e";
        let expected = values([
            ("id", &id),
            ("tenant_id", "NULL"),
            ("aggregate_type", "order"),
            ("aggregate_id", "0dd00000-0000-4000-8000-000000000001"),
            ("event_type", "order.created"),
            ("deduplication_key", "NULL"),
            ("payload", r#"{"number": 1}"#),
            ("headers", "NULL"),
            ("payload_hash", hash),
            ("status", "pending"),
            ("attempt_count", "0"),
            ("forgiven_attempts", "0"),
            ("available_at", &now),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("last_error_code", "NULL"),
            ("completed_at", "NULL"),
            ("dead_at", "NULL"),
            ("created_at", &now),
            ("updated_at", &now),
            ("claimed_in_order", "NULL"),
        ]);
        assert_eq!(columns(&id), expected);
    }

    #[pg_test]
    fn an_event_that_is_scheduled_is_created_now() {
        let clock = Clock::stopped();
        let event = columns(&enqueue(&[("available_at", "'2031-02-03 04:05:06.789012Z'")]));
        assert_eq!(event["available_at"], "2031-02-03T04:05:06.789012+00:00");
        assert_eq!(event["created_at"], clock.now());
    }

    #[pg_test]
    fn created_at_is_the_clock_and_not_the_start_of_the_transaction() {
        run("SELECT pg_sleep(0.02)");
        let first = enqueue(&[]);
        run("SELECT pg_sleep(0.02)");
        let second = enqueue(&[]);
        let created = |id: &str| format!("(SELECT created_at FROM outbox_event WHERE id = '{id}')");
        let (first, second) = (created(&first), created(&second));
        assert!(holds(&format!("{first} >= now() + interval '20 ms'")));
        assert!(holds(&format!("{second} >= {first} + interval '20 ms' AND {second} <= clock_timestamp()")));
        assert!(holds("bool_and(available_at = created_at AND updated_at = created_at) FROM outbox_event"));
    }

    #[pg_test]
    fn ten_thousand_ids_are_version_7_and_strictly_increasing() {
        run(&format!(
            "CREATE TEMP TABLE enqueued AS SELECT n, {} AS id FROM generate_series(1, 10000) AS n",
            enqueue_call(&[])
        ));
        assert_eq!(events(), 10_000);
        assert!(holds(
            "bool_and(substr(id::text, 15, 1) = '7' AND substr(id::text, 20, 1) ~ '[89ab]')
                       FROM enqueued"
        ));
        assert!(holds(
            "bool_and(id > earlier) FROM (
                           SELECT id, lag(id) OVER (ORDER BY n) AS earlier FROM enqueued
                       ) AS pair WHERE earlier IS NOT NULL"
        ));
    }

    #[pg_test]
    fn an_id_begins_with_the_milliseconds_of_the_clock() {
        let milliseconds =
            "('x' || substr(replace(outbox_event_id()::text, '-', ''), 1, 12))::bit(48)::bigint";
        let off: i64 = one(&format!(
            "abs({milliseconds} - floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
        ));
        assert!(off < 1000, "{off} ms off");
    }

    #[pg_test]
    fn an_event_goes_with_the_savepoint_that_is_rolled_back() {
        let kept = enqueue(&[]);
        run(&format!(
            "DO $$ BEGIN PERFORM {}; RAISE EXCEPTION 'undo'; EXCEPTION WHEN raise_exception THEN END $$",
            enqueue_call(&[])
        ));
        assert_eq!(texts("SELECT id FROM outbox_event"), [kept]);
    }

    #[pg_test]
    fn a_good_enqueue_follows_a_thousand_errors_that_were_caught() {
        run(&format!(
            "DO $$ BEGIN FOR n IN 1 .. 1000 LOOP
                 BEGIN PERFORM {}; EXCEPTION WHEN invalid_parameter_value THEN END;
             END LOOP; END $$",
            enqueue_call(&[("headers", "'[]'")])
        ));
        enqueue(&[]);
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn nothing_is_looked_up_in_the_callers_search_path() {
        run("CREATE TEMP TABLE outbox_event (id uuid);
             CREATE FUNCTION pg_temp.outbox_event_id() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'");
        for path in ["", "pg_temp", "pg_temp, pg_catalog, public"] {
            run(&format!("SET LOCAL search_path = {}", if path.is_empty() { "''" } else { path }));
            run(&format!("SELECT public.{}", enqueue_call(&[])));
        }
        assert_eq!(one::<i64>("count(*) FROM public.outbox_event"), 3);
        assert_eq!(one::<i64>("count(*) FROM public.outbox_claim_batch('w')"), 3);
    }

    const SESSION_SETTINGS: [&str; 22] = [
        "array_nulls = off",
        "bytea_output = escape",
        "DateStyle = 'SQL, DMY'",
        "default_toast_compression = pglz",
        "enable_bitmapscan = off",
        "enable_hashjoin = off",
        "enable_indexscan = off",
        "enable_seqscan = off",
        "enable_sort = off",
        "enable_tidscan = off",
        "extra_float_digits = -15",
        "from_collapse_limit = 1",
        "IntervalStyle = iso_8601",
        "jit_above_cost = 0",
        "plan_cache_mode = force_custom_plan",
        "plan_cache_mode = force_generic_plan",
        "quote_all_identifiers = on",
        "row_security = off",
        "session_replication_role = replica",
        "standard_conforming_strings = off",
        "TimeZone = 'Pacific/Chatham'",
        "transform_null_equals = on",
    ];

    #[pg_test]
    fn session_settings_change_nothing_and_are_left_as_they_are() {
        let backend: i32 = one("pg_backend_pid()");
        for (n, setting) in SESSION_SETTINGS.iter().enumerate() {
            run(&format!("SET LOCAL {setting}"));
            let name = setting.split(" = ").next().unwrap();
            let shown: String = one(&format!("current_setting('{name}')"));
            // Another test that runs now must not have the key.
            let key = format!("'{backend}-{n}'");
            let call = format!("{}::text", enqueue_call(&[("deduplication_key", &key)]));
            let id: String = one(&call);
            assert_eq!(one::<String>(&call), id, "{setting}");
            assert_eq!(claim("'w'"), [id.as_str()], "{setting}");
            assert_eq!(one::<String>(&format!("outbox_fail('{id}', 'w', 'e', 0)")), "dead", "{setting}");
            assert_eq!(one::<String>(&format!("current_setting('{name}')")), shown);
            run(&format!("RESET {name}"));
        }
    }

    #[pg_test]
    fn an_enqueue_in_a_read_only_transaction_is_refused_by_postgresql() {
        let refusal = refused(&format!(
            "DO $$ BEGIN SET LOCAL transaction_read_only = on; PERFORM {}; END $$",
            enqueue_call(&[])
        ));
        assert_eq!(refusal.sqlstate, "25006", "{refusal:?}");
    }

    #[pg_test]
    fn a_trigger_on_a_business_table_enqueues() {
        run(&format!(
            "CREATE TEMP TABLE orders (id uuid PRIMARY KEY, total numeric);
             CREATE FUNCTION pg_temp.announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM {}; RETURN NULL;
             END $$;
             CREATE TRIGGER announce AFTER INSERT ON orders
                 FOR EACH ROW EXECUTE FUNCTION pg_temp.announce();
             INSERT INTO orders SELECT gen_random_uuid(), n FROM generate_series(1, 3) AS n",
            enqueue_call(&[("aggregate_id", "NEW.id"), ("payload", "to_jsonb(NEW)")])
        ));
        let same = "bool_and(payload = to_jsonb(o)) AND count(*) = 3
                    FROM outbox_event e JOIN orders o ON o.id = e.aggregate_id";
        assert!(holds(same));
    }

    #[pg_test]
    fn an_event_that_a_trigger_suppresses_is_an_error() {
        run(
            "CREATE FUNCTION pg_temp.suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER suppress BEFORE INSERT ON outbox_event
                 FOR EACH ROW EXECUTE FUNCTION pg_temp.suppress()",
        );
        assert_refused(&enqueue_call(&[]), "09000", "a trigger on outbox_event suppressed it");
    }

    #[pg_test]
    fn an_event_with_a_key_that_a_trigger_suppresses_is_an_error() {
        run(
            "CREATE FUNCTION pg_temp.suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER suppress BEFORE INSERT ON outbox_event
                 FOR EACH ROW EXECUTE FUNCTION pg_temp.suppress()",
        );
        let call = enqueue_call(&[("deduplication_key", "'suppressed'")]);
        assert_refused(&call, "09000", "a trigger on outbox_event suppressed it");
    }
}
