//! `outbox_capture`: rows of a table as events.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const ID: &str = "0dd00000-0000-4000-8000-000000000001";

    /// A table with these columns, captured by a trigger with these arguments.
    fn captured(columns: &str, arguments: &str) {
        run(&format!("CREATE TEMP TABLE orders ({columns})"));
        capture("orders", arguments);
    }

    fn capture(table: &str, arguments: &str) {
        run(&format!(
            "CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW
             EXECUTE FUNCTION outbox_capture({arguments})"
        ));
    }

    /// The events in the order of their capture, as a text about each.
    fn told(expression: &str) -> Vec<String> {
        texts(&format!("SELECT {expression} FROM outbox_event ORDER BY id"))
    }

    /// The error of the first event; nothing is stored.
    fn uncaptured(statement: &str, sqlstate: &str, parts: &[&str]) -> Refusal {
        let refusal = refused(statement);
        assert_eq!(refusal.sqlstate, sqlstate, "{statement}: {refusal:?}");
        assert!(!refusal.detail.is_empty() && !refusal.hint.is_empty(), "{statement}: {refusal:?}");
        for part in parts {
            assert!(refusal.mentions(part), "{part} in {refusal:?}");
        }
        assert_eq!(events(), 0);
        refusal
    }

    #[pg_test]
    fn inserts_updates_and_deletes_become_events_with_before_and_after() {
        captured("id uuid PRIMARY KEY, total numeric", "'order', 'id'");
        run(&format!(
            "INSERT INTO orders VALUES ('{ID}', 12.50);
             UPDATE orders SET total = 20;
             DELETE FROM orders"
        ));
        let (old, new) =
            (format!(r#"{{"id": "{ID}", "total": 12.50}}"#), format!(r#"{{"id": "{ID}", "total": 20}}"#));
        assert_eq!(
            told("concat_ws(' ', event_type, aggregate_type, aggregate_id, payload)"),
            [
                format!(
                    r#"order.created order {ID} {{"after": {old}, "before": null, "operation": "INSERT"}}"#
                ),
                format!(
                    r#"order.updated order {ID} {{"after": {new}, "before": {old}, "operation": "UPDATE"}}"#
                ),
                format!(
                    r#"order.deleted order {ID} {{"after": null, "before": {new}, "operation": "DELETE"}}"#
                ),
            ]
        );
    }

    #[pg_test]
    fn the_other_columns_of_an_event_are_those_of_an_enqueue() {
        let clock = Clock::stopped();
        captured("id uuid", "'order', 'id'");
        run(&format!("INSERT INTO orders VALUES ('{ID}')"));
        let payload = format!(r#"{{"operation": "INSERT", "before": null, "after": {{"id": "{ID}"}}}}"#);
        let enqueued = columns(&enqueue(&[("payload", &quoted(&payload))]));
        let event = row("e", "(SELECT * FROM outbox_event ORDER BY id LIMIT 1) AS e");
        let differing: Vec<_> = event.iter().filter(|(column, value)| enqueued[*column] != **value).collect();
        assert_eq!(differing.len(), 1, "the id alone: {differing:?} at {}", clock.now());
        assert_eq!(claim("'w'").len(), 2);
    }

    #[pg_test]
    fn an_update_that_changes_nothing_is_captured_unless_a_when_clause_hides_it() {
        captured("id uuid, n integer", "'order', 'id'");
        run(&format!("INSERT INTO orders VALUES ('{ID}', 1); UPDATE orders SET n = n"));
        assert_eq!(told("event_type"), ["order.created", "order.updated"]);
        run("DROP TRIGGER capture ON orders;
             CREATE TRIGGER capture AFTER UPDATE ON orders FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*)
             EXECUTE FUNCTION outbox_capture('order', 'id');
             UPDATE orders SET n = n;
             UPDATE orders SET n = 2");
        assert_eq!(told("event_type"), ["order.created", "order.updated", "order.updated"]);
    }

    #[pg_test]
    fn an_update_of_the_id_belongs_to_the_new_one() {
        captured("id bigint", "'order', 'id'");
        run("INSERT INTO orders VALUES (1); UPDATE orders SET id = 2; DELETE FROM orders");
        assert!(holds(
            "array_agg(aggregate_id ORDER BY id) = ARRAY[outbox_aggregate_id('order', '1'),
                 outbox_aggregate_id('order', '2'), outbox_aggregate_id('order', '2')] FROM outbox_event"
        ));
    }

    #[pg_test]
    fn rows_are_as_to_jsonb_shows_them() {
        run("CREATE TYPE pair AS (a integer, b text);
             CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
             CREATE TYPE mood AS ENUM ('sad', 'happy')");
        captured(
            "id uuid, pair pair, pairs pair[], numbers numeric[], positive positive, mood mood, bytes bytea,
             twice integer GENERATED ALWAYS AS (positive * 2) STORED, document jsonb, plain json, flag boolean,
             moment timestamptz, day date, span interval, float float8, range int4range, big text, nothing text,
             xml text, padded char(5), address inet, vector int[][]",
            "'order', 'id'",
        );
        run(&format!(
            r#"INSERT INTO orders VALUES ('{ID}', (1, 'x'), ARRAY[(1, 'y')::pair, NULL], '{{1.50, NaN, 1e30}}', 3,
                   'happy', '\x00ff', DEFAULT, '{{"a": [1.10, null]}}', '{{"b":  1, "b": 2}}', true,
                   '2024-01-01 12:00+02', '2024-02-29', '1 day 2 hours', 0.1, '[1,5)', repeat('é"\ ', 300000), NULL,
                   '<a/>', 'ab', '10.0.0.1', '{{{{1,2}},{{3,4}}}}')"#
        ));
        assert!(holds("payload -> 'after' = (SELECT to_jsonb(o) FROM orders AS o) FROM outbox_event"));
        assert!(holds("payload_hash = outbox_payload_hash(payload) FROM outbox_event"));
        run("UPDATE orders SET big = 'small'");
        assert!(holds(
            "length(payload -> 'before' ->> 'big') = 1200000 AND payload -> 'after' ->> 'big' = 'small'
             FROM outbox_event ORDER BY id DESC LIMIT 1"
        ));
        run("UPDATE orders SET big = repeat('z', 2000000); DELETE FROM orders");
        assert!(holds(
            "length(payload -> 'before' ->> 'big') = 2000000 FROM outbox_event ORDER BY id DESC LIMIT 1"
        ));
    }

    #[pg_test]
    fn columns_that_are_added_dropped_or_altered_are_followed() {
        captured("gone integer, id uuid, n integer", "'order', 'id'");
        let is = |row: &str, expected: &str| {
            let shown: String =
                one(&format!("(payload -> '{row}')::text FROM outbox_event ORDER BY id DESC LIMIT 1"));
            assert_eq!(shown, expected);
        };
        let (before, after) = ("before", "after");
        run(&format!("INSERT INTO orders VALUES (1, '{ID}', 2)"));
        is(after, &format!(r#"{{"n": 2, "id": "{ID}", "gone": 1}}"#));
        run("ALTER TABLE orders DROP gone; UPDATE orders SET n = 3");
        is(before, &format!(r#"{{"n": 2, "id": "{ID}"}}"#));
        is(after, &format!(r#"{{"n": 3, "id": "{ID}"}}"#));
        // The value of a column that is added with a default is not stored in the rows that are there.
        run("ALTER TABLE orders ADD added text DEFAULT 'new'; UPDATE orders SET n = 4");
        is(before, &format!(r#"{{"n": 3, "id": "{ID}", "added": "new"}}"#));
        run("ALTER TABLE orders ADD late integer DEFAULT 7; DELETE FROM orders");
        is(before, &format!(r#"{{"n": 4, "id": "{ID}", "late": 7, "added": "new"}}"#));
        run("ALTER TABLE orders ALTER n TYPE text USING 'text'; ALTER TABLE orders RENAME late TO early");
        run(&format!("INSERT INTO orders (id, n) VALUES ('{ID}', 'x')"));
        is(after, &format!(r#"{{"n": "x", "id": "{ID}", "added": "new", "early": 7}}"#));
    }

    #[pg_test]
    fn ids_of_other_types_go_by_their_text() {
        run("CREATE DOMAIN code AS text; CREATE TYPE size AS ENUM ('small', 'large')");
        for (kind, value, text) in [
            ("bigint", "'9223372036854775807'", "9223372036854775807"),
            ("integer", "-5", "-5"),
            ("smallint", "0", "0"),
            ("numeric(10, 2)", "1.5", "1.50"),
            ("text", "'a b'", "a b"),
            ("varchar(9)", "'é'", "é"),
            ("char(9)", "'ab'", "ab"),
            ("name", "'n'", "n"),
            ("code", "'x-1'", "x-1"),
            ("size", "'large'", "large"),
            ("boolean", "true", "true"),
            ("date", "'2024-02-29'", "2024-02-29"),
            ("timestamp", "'2024-02-29 12:00'", "2024-02-29 12:00:00"),
            ("timestamptz", "'2024-02-29 12:00+00'", "2024-02-29 12:00:00+00"),
            ("interval", "'1 day'", "1 day"),
            ("float8", "0.1", "0.1"),
            ("bytea", r"'\x00ff'", r"\x00ff"),
            ("inet", "'10.0.0.1'", "10.0.0.1/32"),
            ("integer[]", "'{1,2}'", "{1,2}"),
        ] {
            captured(&format!("id {kind}"), "'order', 'id'");
            run(&format!("DELETE FROM outbox_event; INSERT INTO orders VALUES ({value})"));
            assert!(
                holds(&format!(
                    "aggregate_id = outbox_aggregate_id('order', {}) FROM outbox_event",
                    quoted(text)
                )),
                "{kind}"
            );
            assert!(holds(
                "aggregate_id = outbox_aggregate_id('order', o.id::text) FROM outbox_event, orders o"
            ));
            // The same in a session that writes values in another way, which is left as it is.
            for setting in [
                "DateStyle = 'SQL, DMY'",
                "IntervalStyle = iso_8601",
                "TimeZone = 'Pacific/Chatham'",
                "extra_float_digits = -15",
                "bytea_output = escape",
            ] {
                run(&format!("SET LOCAL {setting}; UPDATE orders SET id = id"));
                let (name, value) = setting.split_once(" = ").unwrap();
                assert_eq!(one::<String>(&format!("current_setting('{name}')")), value.trim_matches('\''));
            }
            assert!(holds("count(DISTINCT aggregate_id) = 1 FROM outbox_event"), "{kind}");
            run("RESET DateStyle; RESET IntervalStyle; RESET TimeZone; RESET extra_float_digits; RESET bytea_output;
                 DROP TABLE orders");
        }
    }

    #[pg_test]
    fn a_domain_over_uuid_is_a_uuid() {
        run("CREATE DOMAIN order_id AS uuid; CREATE DOMAIN tenant AS uuid");
        captured("id order_id, owner tenant", "'order', 'id', 'tenant=owner'");
        run(&format!("INSERT INTO orders VALUES ('{ID}', '{ID}')"));
        assert_eq!(told("concat_ws(' ', aggregate_id, tenant_id)"), [format!("{ID} {ID}")]);
    }

    #[pg_test]
    fn the_tenant_is_the_new_rows_and_may_be_null() {
        captured("id uuid, owner uuid", "'order', 'id', 'tenant=owner'");
        let other = ID.replace('1', "2");
        run(&format!(
            "INSERT INTO orders VALUES ('{ID}', '{ID}');
             UPDATE orders SET owner = '{other}';
             UPDATE orders SET owner = NULL;
             DELETE FROM orders"
        ));
        assert_eq!(told("coalesce(tenant_id::text, 'none')"), [ID, &other, "none", "none"]);
    }

    #[pg_test]
    fn columns_tables_and_schemas_may_have_any_name() {
        run(
            r#"CREATE SCHEMA "Über ""uns"""; CREATE TABLE "Über ""uns"""."Bestell'ungen; --" ("Ä ""b"" =\ c" bigint, "Tenant=" uuid)"#,
        );
        capture(
            r#""Über ""uns"""."Bestell'ungen; --""#,
            r#"'Bestellung é', E'Ä "b" =\\ c', 'tenant=Tenant='"#,
        );
        run(&format!(r#"INSERT INTO "Über ""uns"""."Bestell'ungen; --" VALUES (7, '{ID}')"#));
        assert_eq!(told("concat_ws(' ', event_type, tenant_id)"), [format!("Bestellung é.created {ID}")]);
        assert!(holds("aggregate_id = outbox_aggregate_id('Bestellung é', '7') FROM outbox_event"));
        assert_eq!(told(r#"payload #>> '{after,"Ä \"b\" =\\ c"}'"#), ["7"]);
    }

    #[pg_test]
    fn a_capture_looks_nothing_up_in_the_callers_search_path() {
        captured("id bigint", "'order', 'id'");
        run("CREATE SCHEMA decoy;
             CREATE TABLE decoy.outbox_event (id uuid);
             CREATE FUNCTION decoy.jsonb_build_object(VARIADIC \"any\") RETURNS jsonb LANGUAGE internal AS 'jsonb_build_array';
             CREATE FUNCTION decoy.to_jsonb(anyelement) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
             CREATE DOMAIN decoy.text AS integer; CREATE DOMAIN decoy.uuid AS integer");
        for path in ["''", "decoy, pg_catalog, public", "decoy"] {
            run(&format!("SET LOCAL search_path = {path}; INSERT INTO pg_temp.orders VALUES (1)"));
        }
        run("SET LOCAL search_path = public, pg_catalog");
        assert_eq!(told("payload ->> 'operation'"), ["INSERT"; 3]);
    }

    #[pg_test]
    fn the_longest_names_are_accepted() {
        captured(
            &format!("{} uuid", "c".repeat(63)),
            &format!("'{}', '{}'", "x".repeat(247), "c".repeat(63)),
        );
        run(&format!("INSERT INTO orders VALUES ('{ID}')"));
        assert_eq!(told("octet_length(event_type)"), ["255"]);
    }

    #[pg_test]
    fn arguments_that_are_missing_empty_or_too_many_are_refused() {
        for arguments in [
            "",
            "'order'",
            "'', 'id'",
            "'order', 'id', ''",
            "'order', 'id', 'tenant'",
            "'order', 'id', 'owner'",
            "'order', 'id', 'Tenant=id'",
            "'order', 'id', 'tenant=id', 'tenant=id'",
            "'order', 'id', 'tenant=id', 'more'",
            "'order', 'id', 'key=id'",
        ] {
            captured("id uuid", arguments);
            uncaptured(
                &format!("INSERT INTO orders VALUES ('{ID}')"),
                "22023",
                &["capture", "orders", "outbox_capture("],
            );
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn an_event_type_of_more_than_255_bytes_is_refused() {
        for aggregate_type in ["x".repeat(248), "é".repeat(124), "x".repeat(1000)] {
            captured("id uuid", &format!("'{aggregate_type}', 'id'"));
            uncaptured(&format!("INSERT INTO orders VALUES ('{ID}')"), "22023", &["247"]);
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn a_column_that_does_not_exist_is_42703() {
        for (arguments, named) in [
            ("'order', 'nothing'", "nothing"),
            ("'order', 'ID'", "ID"),
            ("'order', '\"id\"'", "id"),
            ("'order', ''", "\"\""),
            ("'order', 'ctid'", "ctid"),
            ("'order', 'tableoid'", "tableoid"),
            ("'order', 'gone'", "gone"),
            ("'order', 'id', 'tenant=nobody'", "nobody"),
            ("'order', 'id', 'tenant='", "\"\""),
        ] {
            captured("id uuid, gone uuid", arguments);
            run("ALTER TABLE orders DROP gone");
            uncaptured(
                &format!("INSERT INTO orders VALUES ('{ID}')"),
                "42703",
                &[named, "orders", "capture"],
            );
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn a_column_that_is_renamed_is_missed_at_the_next_event() {
        captured("id uuid", "'order', 'id'");
        run("ALTER TABLE orders RENAME id TO order_id");
        uncaptured(&format!("INSERT INTO orders VALUES ('{ID}')"), "42703", &["\"id\""]);
    }

    #[pg_test]
    fn a_null_id_is_refused() {
        for kind in ["uuid", "bigint", "text"] {
            captured(&format!("id {kind}"), "'order', 'id'");
            uncaptured("INSERT INTO orders VALUES (NULL)", "22004", &["\"id\"", "orders", "NOT NULL"]);
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn an_empty_id_is_refused() {
        captured("id text", "'order', 'id'");
        uncaptured("INSERT INTO orders VALUES ('')", "22023", &["\"id\"", "orders"]);
    }

    #[pg_test]
    fn a_composite_id_is_refused() {
        run("CREATE TYPE pair AS (a integer, b integer); CREATE DOMAIN pair_domain AS pair");
        for kind in ["pair", "pair_domain"] {
            captured(&format!("id {kind}"), "'order', 'id'");
            for value in ["(1, 2)", "NULL"] {
                uncaptured(
                    &format!("INSERT INTO orders VALUES ({value})"),
                    "42804",
                    &["\"id\"", kind, "generated"],
                );
            }
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn a_tenant_that_is_no_uuid_is_refused() {
        for kind in ["text", "bigint", "uuid[]"] {
            captured(&format!("id uuid, owner {kind}"), "'order', 'id', 'tenant=owner'");
            uncaptured(&format!("INSERT INTO orders VALUES ('{ID}', NULL)"), "42804", &["owner", kind]);
            run("DROP TABLE orders");
        }
    }

    #[pg_test]
    fn the_all_zero_tenant_of_a_row_is_refused() {
        captured("id uuid, owner uuid", "'order', 'id', 'tenant=owner'");
        let zero = "00000000-0000-0000-0000-000000000000";
        uncaptured(&format!("INSERT INTO orders VALUES ('{ID}', '{zero}')"), "22023", &["tenant"]);
    }

    #[pg_test]
    fn no_message_shows_a_row() {
        captured("id text, secret text", "'order', 'nothing'");
        let refusal = uncaptured("INSERT INTO orders VALUES ('hidden', 'hidden')", "42703", &[]);
        assert!(!refusal.mentions("hidden"), "{refusal:?}");
    }

    #[pg_test]
    fn it_is_no_function_to_call_and_no_other_kind_of_trigger() {
        assert_refused("outbox_capture()", "39P01", "outbox_capture");
        run("CREATE TEMP TABLE orders (id uuid)");
        for (timing, statement) in [
            ("BEFORE INSERT ON orders FOR EACH ROW", "INSERT INTO orders VALUES (NULL)"),
            ("BEFORE DELETE ON orders FOR EACH ROW", "DELETE FROM orders"),
            ("AFTER INSERT ON orders FOR EACH STATEMENT", "INSERT INTO orders VALUES (NULL)"),
            ("AFTER UPDATE ON orders FOR EACH STATEMENT", "UPDATE orders SET id = NULL"),
            ("AFTER TRUNCATE ON orders", "TRUNCATE orders"),
            ("BEFORE TRUNCATE ON orders", "TRUNCATE orders"),
        ] {
            run(&format!(
                "TRUNCATE orders; INSERT INTO orders VALUES ('{ID}');
                 CREATE TRIGGER capture {timing} EXECUTE FUNCTION outbox_capture('order', 'id')"
            ));
            let refusal = refused(statement);
            assert_eq!(refusal.sqlstate, "39P01", "{timing}: {refusal:?}");
            assert!(refusal.message.contains("outbox_capture") && !refusal.hint.is_empty(), "{refusal:?}");
            run("DROP TRIGGER capture ON orders");
        }
        run("CREATE VIEW pg_temp.shown AS SELECT * FROM orders;
             CREATE TRIGGER capture INSTEAD OF INSERT ON shown FOR EACH ROW
             EXECUTE FUNCTION outbox_capture('order', 'id')");
        assert_eq!(refused("INSERT INTO shown VALUES (NULL)").sqlstate, "39P01");
    }

    #[pg_test]
    fn truncate_is_not_captured() {
        captured("id uuid", "'order', 'id'");
        run(&format!("INSERT INTO orders VALUES ('{ID}'); TRUNCATE orders"));
        assert_eq!(told("event_type"), ["order.created"]);
    }

    #[pg_test]
    fn rows_that_a_conflict_drops_are_not_captured_and_those_it_updates_are() {
        captured("id bigint PRIMARY KEY, n integer", "'order', 'id'");
        run("INSERT INTO orders VALUES (1, 1);
             INSERT INTO orders VALUES (1, 2), (2, 2) ON CONFLICT DO NOTHING;
             INSERT INTO orders VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.n");
        assert_eq!(told("event_type"), ["order.created", "order.created", "order.updated"]);
    }

    #[pg_test]
    fn what_a_before_trigger_makes_of_a_row_is_captured() {
        captured("id bigint, n integer", "'order', 'id'");
        run("CREATE FUNCTION pg_temp.change() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN IF NEW.n = 0 THEN RETURN NULL; END IF; NEW.n := 42; RETURN NEW; END $$;
             CREATE TRIGGER change BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION pg_temp.change();
             INSERT INTO orders VALUES (1, 1), (2, 0)");
        assert_eq!(told("payload #>> '{after,n}'"), ["42"]);
    }

    #[pg_test]
    fn a_cascade_and_a_nested_trigger_are_captured() {
        captured("id bigint PRIMARY KEY", "'order', 'id'");
        run("CREATE TEMP TABLE lines (id bigint, of bigint REFERENCES orders ON DELETE CASCADE)");
        capture("lines", "'line', 'id'");
        run("CREATE FUNCTION pg_temp.add_line() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO lines VALUES (10 * NEW.id, NEW.id); RETURN NULL; END $$;
             CREATE TRIGGER add_line AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION pg_temp.add_line();
             INSERT INTO orders VALUES (1);
             DELETE FROM orders");
        let mut seen = told("event_type");
        seen.sort();
        assert_eq!(seen, ["line.created", "line.deleted", "order.created", "order.deleted"]);
    }

    #[pg_test]
    fn a_constraint_trigger_captures_when_it_fires() {
        run(&format!(
            "CREATE TEMP TABLE orders (id uuid);
             CREATE CONSTRAINT TRIGGER capture AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION outbox_capture('order', 'id');
             INSERT INTO orders VALUES ('{ID}')"
        ));
        assert_eq!(events(), 0);
        run("SET CONSTRAINTS ALL IMMEDIATE");
        assert_eq!(events(), 1);
    }

    #[pg_test]
    fn two_triggers_make_two_events() {
        captured("id bigint", "'order', 'id'");
        run("CREATE TRIGGER other AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION outbox_capture('sale', 'id');
             INSERT INTO orders VALUES (1)");
        assert_eq!(told("event_type"), ["order.created", "sale.created"]);
        assert_eq!(told("aggregate_id::text").iter().collect::<std::collections::BTreeSet<_>>().len(), 2);
    }

    #[pg_test]
    fn a_trigger_on_the_outbox_itself_ends_with_an_error_and_not_with_a_crash() {
        capture("outbox_event", "'event', 'id'");
        let refusal = refused(&format!("SELECT {}", enqueue_call(&[])));
        // PostgreSQL's own limit of nesting, or the length of the payload, which doubles.
        assert!(["54001", "54000", "53200"].contains(&&*refusal.sqlstate), "{refusal:?}");
        assert_eq!(events(), 0);
    }

    #[pg_test]
    fn payloads_are_held_to_the_limit() {
        captured("id uuid, text text", "'order', 'id'");
        run("SET LOCAL outbox.max_payload_bytes = 1000");
        run(&format!("INSERT INTO orders VALUES ('{ID}', 'short')"));
        run("DELETE FROM outbox_event");
        uncaptured("UPDATE orders SET text = repeat('x', 1000)", "54000", &["1000 bytes"]);
    }

    #[pg_test]
    fn a_payload_tells_json_null_from_a_row_without_columns() {
        run("CREATE TEMP TABLE orders (id uuid)");
        capture("orders", "'order', 'id'");
        run(&format!("INSERT INTO orders VALUES ('{ID}')"));
        assert!(holds("jsonb_typeof(payload -> 'before') = 'null' FROM outbox_event"));
    }

    #[pg_test]
    fn many_columns_are_captured() {
        let columns: String = one(
            "string_agg(format('c%s integer DEFAULT %s', n, n), ', ') FROM generate_series(1, 1500) AS n",
        );
        captured(&format!("id uuid, {columns}"), "'order', 'id'");
        run(&format!("INSERT INTO orders (id) VALUES ('{ID}')"));
        assert_eq!(told("payload #>> '{after,c1500}'"), ["1500"]);
    }
}
