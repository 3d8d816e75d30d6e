//! A table that its owner has altered, and a guard on a table that is not ours: errors, or answers, but never a
//! crash. In a trusted extension the owner is no superuser, and a crash is everybody's.

use support::cluster::Cluster;
use support::{Client, Database, Event, Outbox, Sql};

/// Runs a statement, which may succeed or be refused, and leaves the transaction as it was; the backend must live.
fn survives(session: &mut Client, sql: &str, situation: &str) {
    session.run("SAVEPOINT s");
    if let Err(error) = session.batch_execute(sql) {
        let refusal = error.as_db_error().unwrap_or_else(|| panic!("{situation}: {sql}: {error:?}"));
        assert_ne!(refusal.code().code(), "XX000", "{situation}: {sql}: {error:?}");
    }
    session.run("ROLLBACK TO s");
}

/// Every way into the extension, on rows that are there: one pending, one leased with a key.
const CALLS: [&str; 11] = [
    "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
     VALUES ('order', gen_random_uuid(), 'order.created', '1')",
    "INSERT INTO outbox_event (status, locked_at, locked_by, aggregate_type, aggregate_id, event_type, payload)
     VALUES ('processing', now(), 'w', 'order', gen_random_uuid(), 'order.created', '1')",
    "UPDATE outbox_event SET tenant_id = tenant_id",
    "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1', headers => '{}')",
    "SELECT outbox_enqueue(NULL, 'order', '00000000-0000-0000-0000-000000000001', 'order.created', 'k', '1')",
    "SELECT claimed::text FROM outbox_claim_batch('w', 10, '1 microsecond') AS claimed",
    "SELECT outbox_complete(event, 'w') FROM event",
    "SELECT outbox_fail(event, 'w', 'oops', 1) FROM event",
    "SELECT outbox_replay()",
    "SELECT outbox_replay(ARRAY(SELECT event FROM event), 'order.created', gen_random_uuid())",
    "SELECT outbox_purge('0', statuses => '{completed, dead}')",
];

fn two_events(session: &mut Client) {
    let leased = session.enqueue(&Event { payload: "1", ..Event::keyed("k") });
    session.claim_one("w");
    session.enqueue(&Event::default());
    session.run(&format!("CREATE TABLE event AS SELECT '{leased}'::uuid AS event"));
}

/// The view keeps PostgreSQL from altering the columns that it reads; an owner can take it away.
fn without_the_view(session: &mut Client) {
    for change in ["DROP COLUMN status", "ALTER COLUMN status TYPE text"] {
        let refusal = session.refused(&format!("ALTER TABLE outbox_event {change}"), &[]);
        assert!(["2BP01", "0A000"].contains(&refusal.sqlstate.as_str()), "{change}: {refusal:?}");
    }
    session.run("ALTER EXTENSION outbox_ext DROP VIEW outbox_stats; DROP VIEW outbox_stats");
}

fn columns(session: &mut Client) -> Vec<String> {
    session.column(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'outbox_event'::regclass AND attnum > 0",
        &[],
    )
}

#[test]
fn no_change_of_a_columns_type_crashes_the_server() {
    let cluster = Cluster::start_new();
    let mut session = cluster.session();
    two_events(&mut session);
    without_the_view(&mut session);
    for column in columns(&mut session) {
        for (kind, value) in
            [("bigint", "(1e9 * random())::bigint"), ("text", "random()::text"), ("name", "'x'::name")]
        {
            session.run("BEGIN");
            let altered = session.batch_execute(&format!(
                "ALTER TABLE outbox_event ALTER {column} DROP DEFAULT, ALTER {column} TYPE {kind} USING {value},
                                          ALTER {column} SET DEFAULT {value}"
            ));
            if altered.is_ok() {
                let situation = format!("{column} as {kind}");
                CALLS.iter().for_each(|call| survives(&mut session, call, &situation));
                session.run("DROP TRIGGER zz_outbox_event_guard ON outbox_event");
                CALLS
                    .iter()
                    .for_each(|call| survives(&mut session, call, &format!("{situation}, unguarded")));
            }
            session.run("ROLLBACK");
        }
    }
}

#[test]
fn no_dropped_column_crashes_the_server() {
    let cluster = Cluster::start_new();
    let mut session = cluster.session();
    two_events(&mut session);
    without_the_view(&mut session);
    for column in columns(&mut session) {
        session.run(&format!("BEGIN; ALTER TABLE outbox_event DROP COLUMN {column}"));
        CALLS.iter().for_each(|call| survives(&mut session, call, &format!("without {column}")));
        session.run("ROLLBACK");
    }
}

#[test]
fn the_guard_on_another_table_is_refused() {
    let cluster = Cluster::start_new();
    let mut session = cluster.session();
    let twenty = |kind: &str, value: &str| {
        let columns: Vec<String> = (1..=20).map(|n| format!("c{n} {kind} DEFAULT {value}")).collect();
        columns.join(", ")
    };
    for columns in ["single integer DEFAULT 1".into(), twenty("bigint", "77"), twenty("text", "'x'")] {
        session.run(&format!(
            "CREATE TABLE other ({columns});
             CREATE TRIGGER guard BEFORE INSERT OR UPDATE ON other FOR EACH ROW EXECUTE FUNCTION outbox_event_guard()"
        ));
        let refusal = session.refused("INSERT INTO other DEFAULT VALUES", &[]);
        assert_ne!(refusal.sqlstate, "XX000", "{refusal:?}");
        session.run("DROP TABLE other");
    }
    for timing in
        ["AFTER INSERT ON outbox_event FOR EACH ROW", "BEFORE INSERT ON outbox_event FOR EACH STATEMENT"]
    {
        session.run(&format!("CREATE TRIGGER wrong {timing} EXECUTE FUNCTION outbox_event_guard()"));
        let insert = "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
                      VALUES ('order', gen_random_uuid(), 'order.created', '1')";
        assert_eq!(session.refused(insert, &[]).sqlstate, "39P01");
        session.run("DROP TRIGGER wrong ON outbox_event");
    }
}

#[test]
fn a_table_that_inherits_is_no_part_of_the_outbox() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, status)
         VALUES ('order', gen_random_uuid(), 'done', '1', 'completed');
         CREATE TABLE child () INHERITS (outbox_event);
         INSERT INTO child (aggregate_type, aggregate_id, event_type, payload, payload_hash)
         VALUES ('order', gen_random_uuid(), 'child', '1', repeat('0', 64))",
    );
    assert_eq!(session.claim("w", 10), [], "both rows have the same position, each in its own table");
    let statuses: Vec<String> =
        session.column("SELECT status::text FROM outbox_event ORDER BY event_type", &[]);
    assert_eq!(statuses, ["pending", "completed"]);
}
