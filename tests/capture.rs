//! `outbox_capture` where it takes roles, sessions, a commit or a dump.

use postgres::NoTls;
use support::database::quoted;
use support::server::{program, succeed};
use support::{Client, Database, Outbox, Sql};

/// A captured table; `app.` is where the extension is.
const ORDERS: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY, n integer DEFAULT 0);
    CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW
        EXECUTE FUNCTION outbox_capture('order', 'id')";

fn with_orders() -> Database {
    let database = Database::with_extension();
    database.session().run(ORDERS);
    database
}

/// The events in the order of their capture: type, and the row that is there now or was there last.
fn told(session: &mut Client) -> Vec<String> {
    session.column(
        "SELECT event_type || ' ' || coalesce(nullif(payload -> 'after', 'null'), payload -> 'before')::text
         FROM outbox_event ORDER BY id",
        &[],
    )
}

#[test]
fn an_event_is_committed_with_its_row_and_rolled_back_with_it() {
    let database = with_orders();
    let mut session = database.session();
    session.run("BEGIN; INSERT INTO orders VALUES (1); ROLLBACK");
    session.run("BEGIN; INSERT INTO orders VALUES (2); SAVEPOINT s; INSERT INTO orders VALUES (3); ROLLBACK TO s; COMMIT");
    assert_eq!(told(&mut session), [r#"order.created {"n": 0, "id": 2}"#]);
    let mut worker = database.session();
    assert_eq!(worker.claim("w", 10).len(), 1);
}

#[test]
fn events_of_a_statement_come_in_the_order_of_its_rows() {
    let database = with_orders();
    let mut session = database.session();
    session.run("INSERT INTO orders SELECT n FROM generate_series(1, 1000) AS n");
    let claimed: Vec<String> =
        session.column("SELECT payload #>> '{after,id}' FROM outbox_claim_batch('w', 1000)", &[]);
    assert_eq!(claimed, (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_deferred_constraint_trigger_captures_at_commit() {
    let database = with_orders();
    let mut session = database.session();
    session.run(
        "DROP TRIGGER capture ON orders;
         CREATE CONSTRAINT TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON orders
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION outbox_capture('order', 'id')",
    );
    session.run("BEGIN; INSERT INTO orders VALUES (1); UPDATE orders SET n = 1; DELETE FROM orders");
    assert_eq!(told(&mut session), [""; 0]);
    session.run("COMMIT");
    assert_eq!(
        told(&mut session),
        [
            r#"order.created {"n": 0, "id": 1}"#,
            r#"order.updated {"n": 1, "id": 1}"#,
            r#"order.deleted {"n": 1, "id": 1}"#
        ]
    );
}

#[test]
fn a_captured_transaction_can_be_prepared() {
    let database = with_orders();
    let mut session = database.session();
    let name = format!("capture {}", session.backend());
    session.run(&format!("BEGIN; INSERT INTO orders VALUES (1); PREPARE TRANSACTION '{name}'"));
    assert_eq!(session.count("pending"), 0);
    session.run(&format!("COMMIT PREPARED '{name}'"));
    assert_eq!(session.count("pending"), 1);
}

#[test]
fn capturing_wakes_workers() {
    use postgres::fallible_iterator::FallibleIterator;
    let database = with_orders();
    let (mut session, mut listener) = (database.session(), database.session());
    listener.run("LISTEN outbox");
    session.run(
        "SET outbox.notify_channel = 'outbox'; INSERT INTO orders VALUES (1), (2), (3); NOTIFY outbox, 'end'",
    );
    let mut notifications = listener.notifications();
    let heard: Vec<String> = notifications
        .blocking_iter()
        .map(|one| Ok(one.payload().to_owned()))
        .take_while(|text| Ok(text != "end"))
        .collect()
        .expect("the session lives");
    assert_eq!(heard, [""]);
}

#[test]
fn the_replica_role_captures_nothing_unless_the_trigger_is_always_on() {
    let database = with_orders();
    let mut session = database.session();
    session.run("SET session_replication_role = replica; INSERT INTO orders VALUES (1)");
    assert_eq!(told(&mut session), [""; 0]);
    session.run("ALTER TABLE orders ENABLE ALWAYS TRIGGER capture; INSERT INTO orders VALUES (2)");
    assert_eq!(told(&mut session), [r#"order.created {"n": 0, "id": 2}"#]);
    session.run(
        "RESET session_replication_role; ALTER TABLE orders DISABLE TRIGGER capture; DELETE FROM orders",
    );
    assert_eq!(told(&mut session).len(), 1);
}

#[test]
fn a_partitioned_table_is_captured_through_all_its_partitions() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE TABLE orders (id bigint, region text, n integer) PARTITION BY LIST (region);
         CREATE TABLE east PARTITION OF orders FOR VALUES IN ('east');
         CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW
             EXECUTE FUNCTION outbox_capture('order', 'id');
         CREATE TABLE west (gone integer, n integer, region text, id bigint);
         ALTER TABLE west DROP gone;
         ALTER TABLE orders ATTACH PARTITION west FOR VALUES IN ('west')",
    );
    session.run("INSERT INTO orders VALUES (1, 'east', 1), (2, 'west', 2)");
    session.run("UPDATE orders SET n = 3 WHERE id = 2");
    // To another partition: a row goes, and a row comes.
    session.run("UPDATE orders SET region = 'west' WHERE id = 1");
    session.run("DELETE FROM west WHERE id = 2");
    session.run("INSERT INTO east VALUES (4, 'east', 4)");
    assert_eq!(
        told(&mut session),
        [
            r#"order.created {"n": 1, "id": 1, "region": "east"}"#,
            r#"order.created {"n": 2, "id": 2, "region": "west"}"#,
            r#"order.updated {"n": 3, "id": 2, "region": "west"}"#,
            r#"order.deleted {"n": 1, "id": 1, "region": "east"}"#,
            r#"order.created {"n": 1, "id": 1, "region": "west"}"#,
            r#"order.deleted {"n": 3, "id": 2, "region": "west"}"#,
            r#"order.created {"n": 4, "id": 4, "region": "east"}"#,
        ]
    );
    let aggregates: i64 = session.value("SELECT count(DISTINCT aggregate_id) FROM outbox_event", &[]);
    assert_eq!(aggregates, 3);
}

#[test]
fn copy_is_captured() {
    let database = with_orders();
    let mut session = database.session();
    let mut copy = session.copy_in("COPY orders FROM stdin").expect("COPY");
    std::io::Write::write_all(&mut copy, b"1\t1\n2\t\\N\n").expect("lines");
    copy.finish().expect("COPY");
    assert_eq!(
        told(&mut session),
        [r#"order.created {"n": 1, "id": 1}"#, r#"order.created {"n": null, "id": 2}"#]
    );
}

#[test]
fn merge_is_captured() {
    let database = with_orders();
    let mut session = database.session();
    session.run(
        "INSERT INTO orders VALUES (1);
         MERGE INTO orders USING (VALUES (1), (2)) AS given (id) ON orders.id = given.id
             WHEN MATCHED THEN UPDATE SET n = 5 WHEN NOT MATCHED THEN INSERT (id) VALUES (given.id)",
    );
    let types: Vec<String> = session.column("SELECT event_type::text FROM outbox_event ORDER BY 1", &[]);
    assert_eq!(types, ["order.created", "order.created", "order.updated"]);
}

#[test]
fn another_sessions_alter_table_is_followed_and_so_is_a_renamed_schema() {
    let database = Database::with_extension_in("app");
    let (mut session, mut other) = (database.session(), database.session());
    session.run(&ORDERS.replace("outbox_capture", "app.outbox_capture"));
    session.run("INSERT INTO orders VALUES (1)");
    other.run("ALTER TABLE orders ADD added text DEFAULT 'x'; ALTER TABLE orders ALTER n TYPE text");
    session.run("UPDATE orders SET n = 'y'");
    other.run(
        "ALTER SCHEMA app RENAME TO outbox; CREATE SCHEMA app; CREATE TABLE app.outbox_event (LIKE outbox.outbox_event)",
    );
    session.run("DELETE FROM orders");
    let payloads: Vec<String> =
        session.column("SELECT payload::text FROM outbox.outbox_event ORDER BY id", &[]);
    assert_eq!(
        payloads,
        [
            r#"{"after": {"n": 0, "id": 1}, "before": null, "operation": "INSERT"}"#,
            r#"{"after": {"n": "y", "id": 1, "added": "x"}, "before": {"n": "0", "id": 1, "added": "x"}, "operation": "UPDATE"}"#,
            r#"{"after": null, "before": {"n": "y", "id": 1, "added": "x"}, "operation": "DELETE"}"#,
        ]
    );
}

#[test]
fn a_warm_session_captures_after_the_extension_was_made_anew() {
    let database = with_orders();
    let mut session = database.session();
    session.run("INSERT INTO orders VALUES (1)");
    assert_eq!(session.refused("DROP EXTENSION outbox_ext", &[]).sqlstate, "2BP01");
    session.run("DROP EXTENSION outbox_ext CASCADE; INSERT INTO orders VALUES (2)");
    session.run("CREATE EXTENSION outbox_ext; DROP TABLE orders");
    session.run(ORDERS);
    session.run("INSERT INTO orders VALUES (3)");
    assert_eq!(told(&mut session), [r#"order.created {"n": 0, "id": 3}"#]);
}

/// What docs/capture-triggers.md grants to a role whose statements are captured.
const PRODUCER: &str = "
    GRANT USAGE ON SCHEMA app TO role_name;
    GRANT INSERT (id, tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key,
                  payload, headers, payload_hash, available_at, created_at, updated_at)
       ON app.outbox_event TO role_name";

#[test]
fn a_role_with_business_grants_only_is_refused_until_it_may_insert_events_and_can_never_read_them() {
    let database = Database::with_extension_in("app");
    let role = database.role("clerk");
    let mut session = database.session();
    session.run(&ORDERS.replace("outbox_capture", "app.outbox_capture"));
    session.run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO {role}"));
    let mut clerk = database.session_as(&role);
    let insert = "INSERT INTO orders VALUES (1)";
    for grants in [String::new(), format!("GRANT USAGE ON SCHEMA app TO {role}")] {
        session.run(&grants);
        let refusal = clerk.refused(insert, &[]);
        assert_eq!(refusal.sqlstate, "42501");
        assert!(refusal.message.contains("outbox_event"), "{refusal:?}");
        assert!(refusal.explained().contains("\"capture\" on table \"orders\""), "{refusal:?}");
    }
    assert_eq!(clerk.value::<i64>("SELECT count(*) FROM orders", &[]), 0);

    session.run(&PRODUCER.replace("role_name", &role));
    session.run(&format!("REVOKE USAGE ON SCHEMA app FROM {role}"));
    let refusal = clerk.refused(insert, &[]);
    assert_eq!(refusal.sqlstate, "42501");
    assert!(refusal.message.contains("schema app"), "{refusal:?}");
    session.run(&format!("GRANT USAGE ON SCHEMA app TO {role}"));
    clerk.run("INSERT INTO orders VALUES (1); UPDATE orders SET n = 1; DELETE FROM orders");
    assert_eq!(clerk.refused("SELECT FROM app.outbox_event", &[]).sqlstate, "42501");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 3);
}

#[test]
fn only_who_may_execute_the_function_can_make_a_trigger_of_it() {
    let database = Database::with_extension();
    let role = database.role("owner");
    let mut session = database.session();
    session.run(&format!("CREATE SCHEMA shop AUTHORIZATION {role}"));
    let mut owner = database.session_as(&role);
    owner.run("CREATE TABLE shop.orders (id bigint)");
    let trigger = "CREATE TRIGGER capture AFTER INSERT ON shop.orders FOR EACH ROW
                       EXECUTE FUNCTION outbox_capture('order', 'id')";
    let refusal = owner.refused(trigger, &[]);
    assert_eq!(refusal.sqlstate, "42501");
    assert!(refusal.mentions("outbox_capture"), "{refusal:?}");
    session.run(&format!("GRANT EXECUTE ON FUNCTION outbox_capture TO {role}"));
    owner.run(trigger);
}

/// The function of docs/capture-triggers.md that captures with its owner's rights.
fn definer_pattern() -> String {
    let documented = include_str!("../docs/capture-triggers.md");
    let start = documented.find("CREATE FUNCTION app.capture_as_producer()").expect("the pattern");
    let end = documented[start..].find("```").expect("its end");
    documented[start..start + end].to_owned()
}

#[test]
fn a_definers_function_captures_for_roles_without_any_right_on_the_outbox() {
    let database = Database::with_extension_in("app");
    let (role, producer) = (database.role("clerk"), database.role("producer"));
    let mut session = database.session();
    let pattern = definer_pattern().replace("TO producer", &format!("TO {producer}"));
    session.run(&pattern.replace("FROM producer", &format!("FROM {producer}")));
    session.run(&PRODUCER.replace("role_name", &producer));
    session.run(&format!("GRANT EXECUTE ON FUNCTION app.outbox_enqueue TO {producer}"));
    session.run(&ORDERS.replace("outbox_capture", "app.capture_as_producer"));
    session.run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO {role}"));
    let work = "INSERT INTO orders VALUES (1); UPDATE orders SET n = 1; DELETE FROM orders";
    database.session_as(&role).run(work);
    // The events are those of outbox_capture.
    session.run(
        "CREATE TABLE by_hand AS SELECT * FROM app.outbox_event; TRUNCATE app.outbox_event;
                 DROP TRIGGER capture ON orders",
    );
    session
        .run(&ORDERS.split(';').nth(1).expect("the trigger").replace("outbox_capture", "app.outbox_capture"));
    session.run(work);
    let same: bool = session.value(
        "SELECT array_agg((event_type::text, aggregate_type::text, aggregate_id, payload) ORDER BY id)
              = (SELECT array_agg((event_type::text, aggregate_type::text, aggregate_id, payload) ORDER BY id)
                 FROM by_hand)
         FROM app.outbox_event",
        &[],
    );
    assert!(same);
}

#[test]
fn row_level_security_of_the_outbox_holds_for_what_is_captured() {
    let database = Database::with_extension();
    let role = database.role("clerk");
    let mut session = database.session();
    session.run(&format!(
        "CREATE TABLE orders (id bigint, owner uuid);
         CREATE TRIGGER capture AFTER INSERT ON orders FOR EACH ROW
             EXECUTE FUNCTION outbox_capture('order', 'id', 'tenant=owner');
         ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid);
         GRANT INSERT ON orders, outbox_event TO {role}"
    ));
    let mut clerk = database.session_as(&role);
    clerk.run("SET app.tenant = '00000000-0000-0000-0000-00000000000a'");
    clerk.run("INSERT INTO orders VALUES (1, '00000000-0000-0000-0000-00000000000a')");
    let foreign = clerk.refused("INSERT INTO orders VALUES (2, '00000000-0000-0000-0000-00000000000b')", &[]);
    assert_eq!(foreign.sqlstate, "42501");
    assert_eq!(session.count("pending"), 1);
}

#[test]
fn a_dump_brings_the_trigger_back_and_a_restore_captures_no_row() {
    let database = with_orders();
    let mut session = database.session();
    session.run("INSERT INTO orders VALUES (1), (2)");
    let script = succeed(program("pg_dump").args(["-d", &database.dsn()]));
    let restored = Database::bare();
    let mut client: Client = restored
        .dsn()
        .parse::<postgres::Config>()
        .expect("a connection string")
        .connect(NoTls)
        .expect("a session");
    let file = std::env::temp_dir().join(format!("outbox-{}.sql", session.backend()));
    std::fs::write(&file, script).expect("the script can be written");
    let run = succeed(
        program("psql").args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &restored.dsn(), "-f"]).arg(&file),
    );
    std::fs::remove_file(&file).expect("the script is there");
    drop(run);
    assert_eq!(told(&mut client), told(&mut session));
    client.run("INSERT INTO orders VALUES (3)");
    assert_eq!(told(&mut client).len(), 3);
}

#[test]
fn names_and_texts_of_any_encoding_are_captured_and_reported() {
    for (encoding, table, column) in [("LATIN1", "aufträge", "schlüssel"), ("EUC_JP", "注文", "番号")] {
        let (database, utf8) = (Database::with_encoding(encoding), Database::with_extension());
        let mut ids = Vec::new();
        for database in [&database, &utf8] {
            let mut session = database.session();
            session.run(&format!(
                "CREATE TABLE {table} ({column} text);
                 CREATE TRIGGER capture AFTER INSERT ON {table} FOR EACH ROW
                     EXECUTE FUNCTION outbox_capture('{table}', '{column}');
                 INSERT INTO {table} VALUES ('{column}')"
            ));
            ids.push(session.value::<String>(
                "SELECT concat_ws(' ', event_type, aggregate_id, payload, payload_hash) FROM outbox_event",
                &[],
            ));
            session.run(&format!("ALTER TABLE {table} RENAME {column} TO other"));
            let refusal = session.refused(&format!("INSERT INTO {table} VALUES ('x')"), &[]);
            assert_eq!(refusal.sqlstate, "42703");
            refusal.explained();
        }
        assert_eq!(ids[0], ids[1], "{encoding}");
    }
}

#[test]
fn caught_errors_leave_the_session_healthy() {
    let database = with_orders();
    let mut session = database.session();
    session.run("ALTER TABLE orders DROP CONSTRAINT orders_pkey; ALTER TABLE orders ALTER id DROP NOT NULL");
    session.run(
        "DO $$ BEGIN
             FOR n IN 1 .. 1000 LOOP
                 BEGIN INSERT INTO orders VALUES (NULL); EXCEPTION WHEN null_value_not_allowed THEN NULL; END;
             END LOOP;
             INSERT INTO orders VALUES (1);
         END $$",
    );
    assert_eq!(told(&mut session), [r#"order.created {"n": 0, "id": 1}"#]);
}

/// Where the backend's memory stands after two of the rows of a statement, by PostgreSQL's own count.
const MEASURE: &str = "
    CREATE TABLE measured (bytes bigint);
    CREATE FUNCTION measure() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO measured SELECT sum(used_bytes) FROM pg_backend_memory_contexts;
        RETURN NULL;
    END $$;
    CREATE TRIGGER measure AFTER INSERT OR UPDATE ON orders FOR EACH ROW
        WHEN (NEW.id IN (20000, 100000)) EXECUTE FUNCTION measure()";

#[test]
fn memory_stays_flat_over_a_statement_of_a_hundred_thousand_rows() {
    let database = with_orders();
    let mut session = database.session();
    session.run(MEASURE);
    for statement in [
        "INSERT INTO orders SELECT n FROM generate_series(1, 100000) AS n ORDER BY n",
        "UPDATE orders SET n = 1",
    ] {
        session.run("TRUNCATE measured");
        session.run(statement);
        let bytes: Vec<i64> = session.column("SELECT bytes FROM measured ORDER BY ctid", &[]);
        assert_eq!(bytes.len(), 2);
        assert!((bytes[1] - bytes[0]).abs() < 200_000, "{statement}: {bytes:?}");
    }
    assert_eq!(session.count("pending"), 200_000);
}

#[test]
fn memory_stays_flat_while_tables_are_altered_and_come_and_go() {
    let database = with_orders();
    let mut session = database.session();
    let mut used = Vec::new();
    for round in 0..600 {
        let other = quoted(&format!("orders {round}"));
        session.run(&format!(
            "ALTER TABLE orders ALTER n SET DEFAULT {round};
             INSERT INTO orders (id) VALUES ({round});
             CREATE TABLE {other} (id bigint, n integer);
             CREATE TRIGGER capture AFTER INSERT ON {other} FOR EACH ROW EXECUTE FUNCTION outbox_capture('order', 'id');
             INSERT INTO {other} VALUES (1, 2);
             DROP TABLE {other}"
        ));
        if round % 200 == 199 {
            used.push(
                session.value::<i64>("SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts", &[]),
            );
        }
    }
    assert_eq!(session.count("pending"), 1_200);
    // PostgreSQL itself keeps half a kilobyte for each row type that it has seen; a plan would take several.
    assert!(used[2] - used[1] < 250_000, "{used:?}");
}
