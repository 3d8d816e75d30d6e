//! `outbox_stats` beside workers, under row-level security, and whatever the size of the history.

use std::sync::atomic::{AtomicBool, Ordering};
use support::crowd;
use support::plan::buffers;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

const STATS: &str = "SELECT * FROM outbox_stats";

/// Quickly: the hash is given, since what it says does not matter here.
fn fill(session: &mut Client, status: &str, events: i32) {
    session.run(&format!(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash, status)
         SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64), '{status}'
         FROM generate_series(1, {events})"
    ));
}

#[test]
fn a_hundred_thousand_completed_events_cost_nothing_analysed_or_not() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("ALTER TABLE outbox_event SET (autovacuum_enabled = off)");
    let some = |session: &mut Client| ["pending", "dead"].map(|status| fill(session, status, 100));
    // With statistics from when all events were unfinished or dead; with none; with fresh ones.
    for (before, after) in [("ANALYZE outbox_event", ""), ("", ""), ("", "ANALYZE outbox_event")] {
        session
            .run("TRUNCATE outbox_event; DELETE FROM pg_statistic WHERE starelid = 'outbox_event'::regclass");
        some(&mut session);
        session.run(before);
        session.run(STATS);
        let (without, _) = buffers(&mut session, STATS);
        fill(&mut session, "completed", 100_000);
        session.run(after);
        session.run(STATS);
        let (with, rows) = buffers(&mut session, STATS);
        assert_eq!(rows, 1);
        assert!(with <= without + 20, "'{before}', '{after}': {without} buffers without them, {with} with");
    }
}

#[test]
fn beside_workers_each_event_is_counted_once() {
    const EVENTS: i64 = 200;
    let database = Database::with_extension();
    database.session().enqueue_many(EVENTS as i32);
    let looking = AtomicBool::new(true);
    crowd::each(&database, 4, |number, session| {
        if number > 0 {
            let worker = format!("worker {number}");
            while looking.load(Ordering::Relaxed) {
                for event in session.claim(&worker, 10) {
                    session.fail(event.id, &worker, i32::MAX);
                }
            }
            return;
        }
        for _ in 0..200 {
            let count = session.value::<i64>(
                "SELECT (ready + scheduled + processing)::bigint FROM outbox_stats WHERE dead = 0",
                &[],
            );
            assert_eq!(count, EVENTS);
        }
        looking.store(false, Ordering::Relaxed);
    });
}

#[test]
fn under_a_tenant_policy_the_view_shows_the_tenants_own_events() {
    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);
    let database = Database::with_extension();
    let mut session = database.session();
    let role = database.role("viewer");
    for (tenant, events) in [(A, 2), (B, 3)] {
        for _ in 0..events {
            session.enqueue(&Event { tenant: Some(tenant), ..Event::default() });
        }
    }
    session.run(&format!(
        "GRANT SELECT (id, event_type, status, available_at, locked_at, completed_at, dead_at, tenant_id)
             ON outbox_event TO {role};
         ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid)"
    ));
    let mut viewer = database.session_as(&role);
    viewer.run(&format!("SET app.tenant = '{A}'"));
    assert_eq!(viewer.refused(STATS, &[]).sqlstate, "42501", "the view is nobody's without a grant");
    session.run(&format!("GRANT SELECT ON outbox_stats TO {role}"));
    for (tenant, events) in [(A, 2), (B, 3)] {
        viewer.run(&format!("SET app.tenant = '{tenant}'"));
        assert_eq!(viewer.value::<i64>("SELECT ready FROM outbox_stats", &[]), events);
    }
    session.run(&format!(
        "REVOKE SELECT ON outbox_event FROM {role}; REVOKE SELECT (status) ON outbox_event FROM {role}"
    ));
    assert_eq!(viewer.refused(STATS, &[]).sqlstate, "42501", "the view adds no right to the table's");
}

#[test]
fn the_view_finds_its_table_in_any_schema_after_a_rename_and_whatever_the_search_path() {
    let database = Database::with_extension_in("Outbox of app");
    let mut session = database.session();
    let decoy = "CREATE TABLE decoy.outbox_event (event_type text)";
    session.run(&format!("CREATE SCHEMA decoy; {decoy}; SET search_path = decoy"));
    session.run("SELECT \"Outbox of app\".outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1')");
    assert_eq!(session.value::<i64>("SELECT ready FROM \"Outbox of app\".outbox_stats", &[]), 1);
    session.run("ALTER SCHEMA \"Outbox of app\" RENAME TO app");
    assert_eq!(session.value::<i64>("SELECT ready FROM app.outbox_stats", &[]), 1);
}

#[test]
fn a_table_that_inherits_is_not_counted() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE TABLE child () INHERITS (outbox_event);
         INSERT INTO child (aggregate_type, aggregate_id, event_type, payload, payload_hash)
         VALUES ('order', gen_random_uuid(), 'order.created', '1', repeat('0', 64))",
    );
    assert_eq!(session.query(STATS, &[]).expect("the view").len(), 0);
}
