//! `outbox_enqueue_batch`: what it takes, what it refuses and of which element, and what it answers.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// An element as JSON text, in which every required key has a value; a value is JSON text too.
    fn element(members: &[(&str, &str)]) -> String {
        let usual = [
            ("aggregate_type", r#""order""#),
            ("aggregate_id", r#""0dd00000-0000-4000-8000-000000000001""#),
            ("event_type", r#""order.created""#),
            ("payload", r#"{"number": 1}"#),
        ];
        let members: Vec<_> =
            instead(&usual, members).iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
        format!("{{{}}}", members.join(", "))
    }

    fn array(elements: &[String]) -> String {
        format!("[{}]", elements.join(", "))
    }

    fn call(events: &str) -> String {
        format!("outbox_enqueue_batch({})", quoted(events))
    }

    /// The rows as text.
    fn batch(events: &str) -> Vec<String> {
        texts(&format!("SELECT concat_ws(' ', ordinal, id, deduplicated) FROM {}", call(events)))
    }

    fn batch_of(elements: &[&[(&str, &str)]]) -> Vec<String> {
        batch(&array(&elements.iter().map(|members| element(members)).collect::<Vec<_>>()))
    }

    /// The ids and whether they are earlier events', in order.
    fn answers(elements: &[&[(&str, &str)]]) -> Vec<(String, bool)> {
        let rows = batch_of(elements);
        let answer = |(row, ordinal): (&String, usize)| {
            let parts: Vec<_> = row.split(' ').collect();
            assert_eq!(parts[0], ordinal.to_string());
            (parts[1].to_owned(), parts[2] == "t")
        };
        rows.iter().zip(1..).map(answer).collect()
    }

    /// Checks that an array whose third element has this member is refused, and that nothing is written.
    fn assert_third_refused(members: &[(&str, &str)], sqlstate: &str, parameter: &str) -> Refusal {
        let list = array(&[element(&[]), element(&[]), element(members), element(&[])]);
        let refusal = assert_refused(&call(&list), sqlstate, parameter);
        assert!(refusal.detail.contains("element 3"), "{members:?}: {refusal:?}");
        assert_eq!(events(), 0, "{members:?}");
        refusal
    }

    /// A key that no test in another backend has at the same time, as JSON text.
    fn key(name: &str) -> String {
        format!(r#""{name} {}""#, one::<i32>("pg_backend_pid()"))
    }

    #[pg_test]
    fn an_empty_array_gives_no_rows() {
        assert_eq!(batch("[]"), [""; 0]);
        assert_eq!(events(), 0);
    }

    #[pg_test]
    fn null_for_the_events_is_refused() {
        let refusal = assert_refused("outbox_enqueue_batch(NULL)", "22004", "events");
        assert_eq!(refusal.message, "events must not be null");
    }

    #[pg_test]
    fn what_is_no_array_is_refused() {
        for events in ["null", "{}", &element(&[]), "1", r#""[]""#, "true"] {
            let refusal = assert_refused(&call(events), "22023", "events");
            assert_eq!(refusal.detail, "events is no JSON array.", "{events}");
        }
    }

    #[pg_test]
    fn an_element_that_is_no_object_is_refused() {
        for odd in ["null", "[]", "[{}]", "1", r#""text""#, "true"] {
            let list = array(&[element(&[]), odd.into()]);
            let refusal = assert_refused(&call(&list), "22023", "events");
            assert_eq!(refusal.message, "an element of events is no JSON object", "{odd}");
            assert_eq!(refusal.detail, "It is element 2 of the array.");
            assert_eq!(events(), 0);
        }
    }

    #[pg_test]
    fn an_unknown_key_is_refused_and_neither_it_nor_its_value_is_told() {
        for unknown in ["secret_key", "Payload", "", "payload ", "id", "status"] {
            let refusal = assert_third_refused(&[(unknown, r#""secret_value""#)], "22023", "events");
            assert_eq!(refusal.message, "an element of events has an unknown key");
            assert!(!refusal.mentions("secret"), "{refusal:?}");
        }
    }

    #[pg_test]
    fn each_required_member_must_be_there_and_not_null() {
        for required in ["aggregate_type", "aggregate_id", "event_type"] {
            let refusal = assert_third_refused(&[(required, "null")], "22004", required);
            assert_eq!(refusal.detail, format!("{required} of element 3 is null or missing."));
        }
        let without = |name: &str| {
            let all = [
                ("aggregate_type", r#""order""#),
                ("aggregate_id", r#""0dd00000-0000-4000-8000-000000000001""#),
                ("event_type", r#""order.created""#),
                ("payload", "1"),
            ];
            let rest: Vec<_> = all.iter().filter(|(other, _)| *other != name).collect();
            let members: Vec<_> = rest.iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
            format!("[{{{}}}]", members.join(", "))
        };
        for required in ["aggregate_type", "aggregate_id", "event_type", "payload"] {
            let refusal = assert_refused(&call(&without(required)), "22004", required);
            assert_eq!(refusal.detail, format!("{required} of element 1 is null or missing."));
        }
        assert_refused(&call("[{}]"), "22004", "aggregate_type");
        assert_eq!(events(), 0);
    }

    #[pg_test]
    fn json_null_is_a_payload_and_sql_null_under_every_other_key() {
        batch_of(&[&[
            ("payload", "null"),
            ("tenant_id", "null"),
            ("deduplication_key", "null"),
            ("available_at", "null"),
            ("headers", "null"),
        ]]);
        assert!(holds(
            "payload = 'null' AND headers IS NULL AND tenant_id IS NULL AND deduplication_key IS NULL
                 AND available_at = created_at FROM outbox_event"
        ));
    }

    #[pg_test]
    fn members_that_are_not_json_must_be_strings() {
        for member in
            ["tenant_id", "aggregate_type", "aggregate_id", "event_type", "deduplication_key", "available_at"]
        {
            for (value, found) in [
                ("1", "a JSON number"),
                ("true", "a JSON boolean"),
                ("[\"a\"]", "a JSON array"),
                ("{}", "a JSON object"),
            ] {
                let refusal = assert_third_refused(&[(member, value)], "22023", member);
                assert_eq!(refusal.detail, format!("{member} of element 3 is {found}."));
            }
        }
    }

    #[pg_test]
    fn every_rule_of_enqueue_holds_for_each_element() {
        let long = |length: usize| format!("\"{}\"", "a".repeat(length));
        let zero = r#""00000000-0000-0000-0000-000000000000""#;
        for (member, value, found) in [
            ("aggregate_type", r#""""#, "empty"),
            ("event_type", r#""""#, "empty"),
            ("event_type", &long(256), "256 bytes long"),
            ("aggregate_type", &format!("\"{}\"", "é".repeat(128)), "256 bytes long"),
            ("deduplication_key", r#""""#, "empty"),
            ("deduplication_key", &long(1025), "1025 bytes long"),
            ("tenant_id", zero, "the all-zero uuid"),
            ("available_at", r#""infinity""#, "infinite"),
            ("available_at", r#""-infinity""#, "infinite"),
            ("headers", "[]", "no JSON object"),
            ("headers", "1", "no JSON object"),
            ("headers", r#""{}""#, "no JSON object"),
        ] {
            let refusal = assert_third_refused(&[(member, value)], "22023", member);
            assert_eq!(refusal.detail, format!("{member} of element 3 is {found}."));
        }
        batch_of(&[&[("aggregate_type", &long(255)), ("deduplication_key", &long(1024))]]);
    }

    #[pg_test]
    fn a_malformed_uuid_or_timestamp_is_refused_and_not_told() {
        for (member, value) in [
            ("tenant_id", r#""secret""#),
            ("aggregate_id", r#""""#),
            ("aggregate_id", r#""0dd00000-0000-4000-8000-00000000000g""#),
            ("aggregate_id", r#""0dd00000-0000-4000-8000-0000000000010""#),
            ("available_at", r#""""#),
            ("available_at", r#""secret""#),
            ("available_at", r#""2031-13-01""#),
            ("available_at", r#""294277-01-01""#),
            ("available_at", r#""2031-01-01 00:00 Nowhere/Land""#),
            ("available_at", r#""2031-01-01 00:00+99""#),
        ] {
            let refusal = assert_third_refused(&[(member, value)], "22023", member);
            let found = if member == "available_at" { "no timestamp" } else { "no uuid" };
            assert_eq!(refusal.detail, format!("{member} of element 3 is {found}."), "{value}");
            assert!(!refusal.mentions("secret"), "{refusal:?}");
        }
    }

    #[pg_test]
    fn uuids_and_timestamps_are_read_as_postgresql_reads_them() {
        run("SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL TimeZone = 'Asia/Tokyo'");
        for (available_at, literal) in [
            (r#""02/03/2031 04:05:06""#, "2031-03-02T04:05:06+09"),
            (r#""2031-03-02T04:05:06.789012Z""#, "2031-03-02T04:05:06.789012Z"),
            (r#""epoch""#, "1970-01-01T00:00Z"),
            (r#""now""#, "now"),
            (r#""4713-01-01 00:00:00+00 BC""#, "4713-01-01 00:00:00+00 BC"),
        ] {
            let id = &answers(&[&[("available_at", available_at)]])[0].0;
            let kept = format!("available_at = '{literal}' FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&kept), "{available_at}");
        }
        for aggregate in ["{0DD00000-0000-4000-8000-000000000001}", "0dd0000000004000-8000000000000001"] {
            let id = &answers(&[&[("aggregate_id", &format!("\"{aggregate}\""))]])[0].0;
            let kept = format!("aggregate_id = '{aggregate}' FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&kept), "{aggregate}");
        }
    }

    #[pg_test]
    fn every_json_value_is_kept_as_a_payload_with_every_digit() {
        let payloads = [
            "null",
            "true",
            "false",
            "0",
            "-1.50",
            "1E400",
            "0.1234567890123456789012345678901234567890",
            "18446744073709551616",
            r#""""#,
            r#""text \" \\ \n é 😀""#,
            "[]",
            "{}",
            r#"[null, 1, "a", true, [[]], {"a": {"b": [1.10]}}]"#,
        ];
        let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
        let wide = format!("[{}]", (0..500).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
        let long = format!("\"{}\"", "é".repeat(100_000));
        let all: Vec<&str> = payloads.into_iter().chain([deep.as_str(), &wide, &long]).collect();
        let elements: Vec<_> = all.iter().map(|payload| element(&[("payload", payload)])).collect();
        batch(&array(&elements));
        for (offset, payload) in all.iter().enumerate() {
            let same = format!(
                "payload = {0} AND payload::text = {0}::jsonb::text AND payload_hash = outbox_payload_hash({0})
                 FROM (SELECT * FROM outbox_event ORDER BY id OFFSET {offset} LIMIT 1) AS event",
                quoted(payload)
            );
            assert!(holds(&same), "{payload:.80}");
        }
    }

    #[pg_test]
    fn an_element_whose_payload_is_over_the_limit_is_refused() {
        run("SET LOCAL outbox.max_payload_bytes = 100");
        let refusal =
            assert_third_refused(&[("payload", &format!("\"{}\"", "x".repeat(93)))], "54000", "payload");
        assert!(refusal.detail.starts_with("payload has 101 bytes"), "{refusal:?}");
        batch_of(&[&[("payload", &format!("\"{}\"", "x".repeat(92)))]]);
    }

    #[pg_test]
    fn headers_that_are_an_object_are_kept() {
        for headers in ["{}", r#"{"traceparent": "00-ab-01", "n": [1, null]}"#] {
            let id = &answers(&[&[("headers", headers)]])[0].0;
            let kept = format!("headers = '{headers}' FROM outbox_event WHERE id = '{id}'");
            assert!(holds(&kept), "{headers}");
        }
    }

    #[pg_test]
    fn an_array_that_is_compressed_in_a_table_is_read() {
        run("CREATE TEMP TABLE sent AS
             SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'order', 'aggregate_id', gen_random_uuid(),
                    'event_type', 'order.created', 'payload', repeat('x', 10000))) AS list
             FROM generate_series(1, 100)");
        run("SELECT outbox_enqueue_batch(list) FROM sent");
        assert!(holds(
            "count(*) = 100 AND bool_and(payload = to_jsonb(repeat('x', 10000))) FROM outbox_event"
        ));
    }

    #[pg_test]
    fn an_element_becomes_the_row_that_enqueue_writes() {
        let clock = Clock::stopped();
        let now = clock.now();
        let id = &answers(&[&[
            ("tenant_id", r#""7e000000-0000-4000-8000-000000000001""#),
            ("deduplication_key", &key("row")),
            ("headers", r#"{"h": 1}"#),
        ]])[0]
            .0;
        let single = enqueue(&[
            ("tenant_id", "'7e000000-0000-4000-8000-000000000001'"),
            ("deduplication_key", "'another'"),
            ("headers", r#"'{"h": 1}'"#),
        ]);
        let mut expected = columns(&single);
        expected.insert("id".into(), id.clone());
        expected.insert("deduplication_key".into(), key("row").trim_matches('"').into());
        assert_eq!(columns(id), expected);
        assert_eq!(columns(id)["created_at"], now);
    }

    #[pg_test]
    fn ids_increase_with_the_ordinal_and_the_clock_is_read_once() {
        let elements: Vec<_> = (0..2000)
            .map(|n| {
                // Keys in another order than the elements, and elements without one.
                let key = key(&format!("{}", n * 7919 % 2000));
                if n % 3 == 0 { element(&[]) } else { element(&[("deduplication_key", &key)]) }
            })
            .collect();
        run(&format!("CREATE TEMP TABLE answer AS SELECT * FROM {}", call(&array(&elements))));
        assert!(holds(
            "bool_and(id > earlier) FROM (SELECT id, lag(id) OVER (ORDER BY ordinal) AS earlier FROM answer) AS pair
             WHERE earlier IS NOT NULL"
        ));
        assert!(holds("count(*) = 2000 AND count(DISTINCT created_at) = 1 FROM outbox_event"));
        assert!(holds("bool_and(available_at = created_at AND updated_at = created_at) FROM outbox_event"));
        assert_eq!(claim("'w', 2000"), texts("SELECT id FROM answer ORDER BY ordinal"));
    }

    #[pg_test]
    fn a_key_that_is_repeated_in_the_array_gives_one_event() {
        let k = key("repeated");
        let answers = answers(&[
            &[("deduplication_key", &k)],
            &[],
            &[("deduplication_key", &k), ("payload", r#"{"number": 1.0}"#)],
            &[("deduplication_key", &k), ("headers", "{}")],
        ]);
        let first = &answers[0].0;
        assert_eq!((answers[0].1, answers[1].1), (false, false));
        assert_eq!(answers[2], (first.clone(), true));
        assert_eq!(answers[3], (first.clone(), true));
        assert_eq!(events(), 2);
        assert_eq!(columns(first)["headers"], "NULL");
    }

    #[pg_test]
    fn a_key_that_was_used_before_gives_the_earlier_event_whatever_its_state() {
        for state in State::ALL {
            let earlier = only_event(state);
            let k = key("before");
            update(&earlier, &format!("deduplication_key = '{}'", k.trim_matches('"')));
            let before = columns(&earlier);
            let answers = answers(&[&[], &[("deduplication_key", &k)], &[("deduplication_key", &k)], &[]]);
            assert_eq!(answers[1], (earlier.clone(), true), "{state:?}");
            assert_eq!(answers[2], (earlier.clone(), true), "{state:?}");
            assert!(!answers[0].1 && !answers[3].1);
            assert_eq!(columns(&earlier), before);
            assert_eq!(events(), 3);
        }
    }

    #[pg_test]
    fn a_second_call_with_the_same_array_gives_the_same_ids() {
        let elements: Vec<_> = (0..500)
            .map(|n| {
                let tenant = if n % 2 == 0 { "null" } else { r#""7e000000-0000-4000-8000-000000000001""# };
                element(&[("deduplication_key", &key(&n.to_string())), ("tenant_id", tenant)])
            })
            .collect();
        let list = array(&elements);
        let first = batch(&list);
        let expected: Vec<_> = first.iter().map(|row| row.replace(" f", " t")).collect();
        assert_eq!(batch(&list), expected);
        assert_eq!(events(), 500);
    }

    #[pg_test]
    fn tenants_and_event_types_have_keys_of_their_own() {
        let k = key("own");
        let (a, b) =
            (r#""7e000000-0000-4000-8000-000000000001""#, r#""7e000000-0000-4000-8000-000000000002""#);
        let elements: [&[(&str, &str)]; 5] = [
            &[("deduplication_key", &k), ("payload", "1")],
            &[("deduplication_key", &k), ("payload", "2"), ("tenant_id", a)],
            &[("deduplication_key", &k), ("payload", "3"), ("tenant_id", b)],
            &[("deduplication_key", &k), ("payload", "4"), ("event_type", r#""order.paid""#)],
            &[
                ("deduplication_key", &k),
                ("payload", "5"),
                ("tenant_id", a),
                ("event_type", r#""order.paid""#),
            ],
        ];
        let first = answers(&elements);
        assert!(first.iter().all(|(_, deduplicated)| !deduplicated));
        let ids = |answers: &[(String, bool)]| answers.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        let again = answers(&elements);
        assert!(again.iter().all(|(_, deduplicated)| *deduplicated));
        assert_eq!(ids(&first), ids(&again));
    }

    #[pg_test]
    fn a_key_with_another_payload_or_aggregate_in_the_array_is_refused() {
        let k = key("conflict");
        let other = r#""0dd00000-0000-4000-8000-000000000002""#;
        for (members, what) in [
            (&[("payload", r#""secret""#)][..], "another payload"),
            (&[("aggregate_id", other)], "another aggregate"),
            (&[("aggregate_type", r#""secret""#)], "another aggregate"),
            (&[("aggregate_id", other), ("payload", "2")], "another payload and another aggregate"),
        ] {
            let conflicting: Vec<_> =
                [("deduplication_key", k.as_str())].iter().chain(members).copied().collect();
            let elements =
                [element(&[]), element(&[("deduplication_key", &k)]), element(&[]), element(&conflicting)];
            let refusal = assert_refused(&call(&array(&elements)), "23505", "deduplication_key");
            assert_eq!(refusal.message, format!("deduplication_key was used before with {what}"));
            assert_eq!(refusal.detail, "The key of element 4 is held by element 2.");
            assert!(!refusal.mentions("secret"));
            assert_eq!(events(), 0);
        }
    }

    #[pg_test]
    fn a_key_that_was_used_before_for_another_event_is_refused_and_nothing_is_written() {
        let k = key("conflict");
        let tenant = r#""7e000000-0000-4000-8000-000000000001""#;
        for tenant in ["null", tenant] {
            run("DELETE FROM outbox_event");
            let earlier = answers(&[&[("deduplication_key", &k), ("tenant_id", tenant)]])[0].0.clone();
            let elements = [
                element(&[]),
                element(&[("deduplication_key", &key("free")), ("tenant_id", tenant)]),
                element(&[("deduplication_key", &k), ("payload", r#""secret""#), ("tenant_id", tenant)]),
            ];
            let refusal = assert_refused(&call(&array(&elements)), "23505", "deduplication_key");
            assert_eq!(refusal.detail, format!("The key of element 3 is held by event {earlier}."));
            assert!(!refusal.mentions("secret"));
            assert_eq!(events(), 1);
        }
    }

    #[pg_test]
    fn an_element_that_a_trigger_suppresses_is_an_error() {
        run("CREATE FUNCTION pg_temp.suppress() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN RETURN CASE WHEN NEW.payload = ''2'' THEN NULL ELSE NEW END; END';
             CREATE TRIGGER suppress BEFORE INSERT ON outbox_event
                 FOR EACH ROW EXECUTE FUNCTION pg_temp.suppress()");
        let k = key("suppressed");
        for members in [&[("payload", "2")][..], &[("payload", "2"), ("deduplication_key", &k)]] {
            let list = array(&[element(&[]), element(members)]);
            assert_refused(&call(&list), "09000", "a trigger on outbox_event suppressed it");
            assert_eq!(events(), 0);
        }
        batch_of(&[&[], &[("deduplication_key", &k)]]);
    }

    #[pg_test]
    fn an_element_whose_key_is_held_by_a_hidden_event_is_refused() {
        run("ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
             CREATE POLICY orders ON outbox_event USING (aggregate_type = 'order');
             CREATE ROLE outbox_test_batch_producer;
             GRANT SELECT, INSERT ON outbox_event TO outbox_test_batch_producer;
             GRANT EXECUTE ON FUNCTION outbox_enqueue_batch TO outbox_test_batch_producer");
        let k = key("hidden");
        let hidden = [("aggregate_type", r#""invoice""#), ("deduplication_key", k.as_str())];
        let id = answers(&[&hidden])[0].0.clone();
        run("SET LOCAL ROLE outbox_test_batch_producer");
        let seen = key("seen");
        let list = array(&[element(&[("deduplication_key", &seen)]), element(&[("deduplication_key", &k)])]);
        let refusal = assert_refused(&call(&list), "42501", "row-level security hides");
        assert_eq!(refusal.detail, "It is element 2 of the array.");
        assert!(!refusal.mentions(&id) && !refusal.mentions("invoice"), "{refusal:?}");
        batch_of(&[&[("deduplication_key", &seen)], &[("deduplication_key", &seen)]]);
    }

    #[pg_test]
    fn a_batch_looks_nothing_up_in_the_callers_search_path() {
        run(
            "CREATE TEMP TABLE outbox_event (id uuid);
             CREATE FUNCTION pg_temp.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE sql AS 'SELECT NULL'",
        );
        let k = key("path");
        for path in ["''", "pg_temp", "pg_temp, pg_catalog, public"] {
            run(&format!("SET LOCAL search_path = {path}"));
            let list = array(&[element(&[]), element(&[("deduplication_key", &k)])]);
            assert_eq!(one::<i64>(&format!("count(*) FROM public.{}", call(&list))), 2);
        }
        assert_eq!(one::<i64>("count(*) FROM public.outbox_event"), 4);
    }

    #[pg_test]
    fn it_can_be_called_in_the_select_list_and_for_many_arrays() {
        run(&format!(
            "CREATE TEMP TABLE sent AS SELECT {}::jsonb AS list FROM generate_series(1, 3)",
            quoted(&array(&[element(&[]), element(&[])]))
        ));
        assert_eq!(
            one::<i64>("count(answer) FROM (SELECT outbox_enqueue_batch(list) FROM sent) AS q (answer)"),
            6
        );
        assert_eq!(
            one::<i64>("count(DISTINCT answer.id) FROM sent, outbox_enqueue_batch(list) AS answer"),
            6
        );
        assert_eq!(events(), 12);
    }

    #[pg_test]
    fn a_good_batch_follows_errors_that_were_caught_also_those_of_input() {
        let bad = array(&[element(&[]), element(&[("aggregate_id", r#""x""#)])]);
        run(&format!(
            "DO $$ BEGIN FOR n IN 1 .. 200 LOOP
                 BEGIN PERFORM {}; EXCEPTION WHEN invalid_parameter_value THEN END;
             END LOOP; END $$",
            call(&bad)
        ));
        batch_of(&[&[], &[]]);
        assert_eq!(events(), 2);
    }
}
