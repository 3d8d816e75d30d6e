//! pg_dump and pg_restore bring back every event in every column, and the old keys still deduplicate.

use support::backup::Backup;
use support::server::{program, succeed};
use support::story::live_through;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// Events in all four states, with something in every column.
fn fill(session: &mut Client) {
    session.run("SET outbox.backoff_base = '1h'");
    for (number, status) in ["pending", "processing", "completed", "dead", "retried"].into_iter().enumerate()
    {
        let event = Event {
            tenant: (number % 2 == 0).then(|| Uuid::from_u128(9)),
            payload: r#"{"text": "naïve \"quoted\" \\ 中\n😀", "number": 1.10, "big": 1e400, "deep": [[[{}]]]}"#,
            headers: Some(r#"{"traceparent": "00-1"}"#),
            ..Event::keyed(status)
        };
        let id = session.enqueue(&event);
        if status == "pending" {
            // Behind the others: each of them is claimed as soon as it is there.
            session.run("UPDATE outbox_event SET available_at = available_at + '1 day'::interval");
            continue;
        }
        assert_eq!(session.claim_one("worker é").id, id);
        match status {
            "completed" => session.complete(id, "worker é"),
            "dead" => assert_eq!(session.fail(id, "worker é", 1), "dead"),
            "retried" => {
                session.execute("SELECT outbox_fail($1, 'worker é', 'busy')", &[&id]).expect("it is leased");
            }
            _ => {}
        }
    }
    session.run("UPDATE outbox_event SET forgiven_attempts = 1 WHERE deduplication_key = 'retried'");
}

fn rows(session: &mut Client) -> Vec<String> {
    session.column("SELECT event::text FROM outbox_event AS event ORDER BY id", &[])
}

fn is_restored(source: &Database, target: &Database) {
    let (mut source, mut target) = (source.session(), target.session());
    let expected = rows(&mut source);
    assert_eq!(expected.len(), 5);
    assert_eq!(rows(&mut target), expected);
    the_old_keys_deduplicate(&mut source, &mut target);
    finish_the_lease(&mut target);
    live_through(&mut target, "");
}

fn the_old_keys_deduplicate(source: &mut Client, target: &mut Client) {
    let kept = source
        .query("SELECT id, tenant_id, deduplication_key::text, payload::text FROM outbox_event", &[])
        .expect("the events");
    for row in &kept {
        let event = Event { tenant: row.get(1), payload: row.get(3), ..Event::keyed(row.get(2)) };
        assert_eq!(target.enqueue(&event), row.get::<_, Uuid>(0));
    }
}

fn finish_the_lease(session: &mut Client) {
    let id: Uuid = session.value("SELECT id FROM outbox_event WHERE status = 'processing'", &[]);
    session.try_complete(id, "worker é", Some(1)).expect("the lease was restored too");
}

fn filled() -> Database {
    let database = Database::with_extension();
    fill(&mut database.session());
    database
}

#[test]
fn a_custom_format_dump_brings_everything_back() {
    for jobs in ["-j1", "-j4"] {
        let (source, target) = (filled(), Database::bare());
        let file = Backup::of(&source, "custom");
        succeed(program("pg_restore").args(["-e", jobs, "-d", &target.dsn()]).arg(file.file()));
        is_restored(&source, &target);
    }
}

#[test]
fn a_plain_dump_brings_everything_back() {
    let (source, target) = (filled(), Database::bare());
    let file = Backup::of(&source, "plain");
    succeed(
        program("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &target.dsn(), "-f"])
            .arg(file.file()),
    );
    is_restored(&source, &target);
}

#[test]
fn a_dump_of_a_schema_of_its_own_brings_everything_back() {
    let (source, target) = (Database::with_extension_in("Odd Schema"), Database::bare());
    let mut session = source.session();
    session.run("SET search_path = \"Odd Schema\"");
    fill(&mut session);
    let file = Backup::of(&source, "custom");
    file.restore_into(&target);
    let mut restored = target.session();
    restored.run("SET search_path = \"Odd Schema\"");
    assert_eq!(rows(&mut restored), rows(&mut session));
}

#[test]
fn an_owner_who_is_no_superuser_restores_everything() {
    let source = filled();
    let (target, owner) = Database::owned_by_a_role();
    let file = Backup::of(&source, "custom");
    // Of the schema public, which the dump comments on and grants rights to, the owner is not the owner.
    let as_owner = target.dsn().replace("user=postgres", &format!("user={owner}"));
    succeed(
        program("pg_restore").args(["-e", "--no-owner", "--no-privileges", "-d", &as_owner]).arg(file.file()),
    );
    is_restored(&source, &target);
    live_through(&mut target.session_as(&owner), "");
    let owned: bool = target
        .session()
        .value("SELECT relowner = $1::text::regrole FROM pg_class WHERE relname = 'outbox_event'", &[&owner]);
    assert!(owned);
}

#[test]
fn grants_on_the_table_the_view_and_the_functions_are_restored() {
    let (source, target) = (filled(), Database::bare());
    let role = source.role("app");
    source.session().run(&format!(
        "GRANT SELECT ON outbox_event, outbox_stats TO {role}; GRANT EXECUTE ON FUNCTION outbox_complete TO {role}"
    ));
    let file = Backup::of(&source, "custom");
    file.restore_into(&target);
    let rights: Vec<bool> = target.session().column(
        "SELECT has_table_privilege($1::text, 'outbox_event', 'SELECT')
         UNION ALL SELECT has_table_privilege($1::text, 'outbox_stats', 'SELECT')
         UNION ALL SELECT has_function_privilege($1::text, 'outbox_complete(uuid, text, integer)', 'EXECUTE')
         UNION ALL SELECT NOT has_function_privilege($1::text, oid, 'EXECUTE')
                          FROM pg_proc WHERE proname = 'outbox_fail'",
        &[&role],
    );
    assert_eq!(rights, [true; 4]);
    // Before the role: its grants there would keep it from being dropped.
    drop(target);
}

#[test]
fn dropping_the_extension_drops_its_events_and_stops_at_what_depends_on_them() {
    let database = filled();
    let mut session = database.session();
    session.run("CREATE VIEW waiting AS SELECT count(*) FROM outbox_event");
    assert_eq!(session.refused("DROP EXTENSION outbox_ext", &[]).sqlstate, "2BP01");
    session.run("DROP EXTENSION outbox_ext CASCADE");
    let left: bool =
        session.value("SELECT to_regclass('outbox_event') IS NULL AND to_regclass('waiting') IS NULL", &[]);
    assert!(left);
}
