//! What the statements inside the functions cost: their plans, the buffers they touch, HOT, transaction ids, TOAST.

use support::plan::{Plan, Recorder, buffers};
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// Pending events, quickly: the hash is given, since what it says does not matter here.
fn fill(session: &mut Client, events: i32) {
    session
        .execute(
            "INSERT INTO outbox_event
                 (aggregate_type, aggregate_id, event_type, deduplication_key, payload, payload_hash)
             SELECT 'order', '00000000-0000-0000-0000-000000000001', 'order.created', 'key ' || n, '1',
                    repeat('a', 64)
             FROM generate_series(1, $1) AS n",
            &[&events],
        )
        .expect("the backlog");
}

fn seek(plans: &[Plan]) {
    assert!(!plans.is_empty());
    for plan in plans {
        assert!(plan.seeks(), "{:?} for {}", plan.kinds(), plan.query);
    }
}

/// The claim's scan stops early, and locks only what it returns.
fn stops_early(plans: &[Plan]) {
    let scan =
        plans.iter().find(|plan| plan.kinds().contains(&"LockRows")).expect("the claim locks what it takes");
    assert_eq!(scan.kinds(), ["Limit", "LockRows", "Index Scan"]);
}

/// Every function once; all its plans seek.
fn everything_seeks(recorder: &mut Recorder, round: &str) {
    let (claimed, plans) = recorder.plans(|session| session.claim("w", 2));
    assert_eq!(claimed.len(), 2);
    seek(&plans);
    stops_early(&plans);
    let (_, plans) = recorder.plans(|session| session.complete(claimed[0].id, "w"));
    seek(&plans);
    let (_, plans) = recorder.plans(|session| session.refused_complete(claimed[0].id, "w", None));
    seek(&plans);
    let (_, plans) = recorder.plans(|session| session.fail(claimed[1].id, "w", 1));
    seek(&plans);
    for tenant in [None, Some(Uuid::from_u128(3))] {
        let event = Event { tenant, ..Event::keyed(round) };
        let (id, _) = recorder.plans(|session| session.enqueue(&event));
        let (again, plans) = recorder.plans(|session| session.enqueue(&event));
        assert_eq!(again, id);
        seek(&plans);
    }
}

/// A claim of a hundred touches few buffers an event, whatever waits behind it.
fn touches_few_buffers(session: &mut Client) {
    let (touched, rows) = buffers(session, "SELECT * FROM outbox_claim_batch('w', 100)");
    assert_eq!(rows, 100);
    assert!(touched <= 8 * rows, "{touched} buffers for {rows} events");
}

/// What users set for their own statements, which must not reach ours.
const SETTINGS: [&str; 6] = [
    "",
    "SET plan_cache_mode = force_custom_plan",
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_indexscan = off; SET enable_tidscan = off; SET enable_indexonlyscan = off",
    "SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off",
    "SET random_page_cost = 1000; SET cpu_index_tuple_cost = 1000; SET jit_above_cost = 0",
];

#[test]
fn with_a_backlog_of_two_hundred_thousand_every_plan_seeks_whatever_the_settings_of_the_session() {
    let database = Database::with_extension();
    fill(&mut database.session(), 200_000);
    for settings in SETTINGS {
        let mut recorder = Recorder::start(&database);
        recorder.session.run(settings);
        everything_seeks(&mut recorder, &format!("under {settings}"));
        let mut session = database.session();
        session.run(settings);
        session.claim("w", 1); // reads the catalogs and makes the plans
        touches_few_buffers(&mut session);
    }
    // The same with statistics.
    database.session().run("VACUUM ANALYZE outbox_event");
    everything_seeks(&mut Recorder::start(&database), "analysed");
}

#[test]
fn a_small_table_is_read_through_its_indexes_too_whatever_the_settings_of_the_session() {
    let database = Database::with_extension();
    let mut session = database.session();
    // On one page a sequential scan is the planner's own choice.
    fill(&mut session, 40);
    session.run("VACUUM ANALYZE outbox_event");
    for settings in SETTINGS {
        let mut recorder = Recorder::start(&database);
        recorder.session.run(settings);
        everything_seeks(&mut recorder, &format!("under {settings}"));
    }
}

#[test]
fn a_plan_made_while_the_table_was_empty_holds_when_it_has_filled() {
    let database = Database::with_extension();
    let mut session = database.session();
    for settings in ["", "SET enable_indexscan = off; SET enable_tidscan = off"] {
        session.run("TRUNCATE outbox_event");
        session.run("VACUUM ANALYZE outbox_event");
        let mut recorder = Recorder::start(&database);
        recorder.session.run(settings);
        warm_up_on_nothing(&mut recorder.session);
        fill(&mut session, 100_000);
        everything_seeks(&mut recorder, "filled");
        touches_few_buffers(&mut recorder.session);
    }
}

#[test]
fn a_batch_is_looked_up_also_by_plans_that_were_made_while_the_table_was_small() {
    let database = Database::with_extension();
    let (mut session, mut other) = (database.session(), database.session());
    fill(&mut other, 100);
    other.run("VACUUM ANALYZE outbox_event");
    let settlements = [
        "extend_batch($1, 'w')",
        "release_batch($1, 'w')",
        "fail_batch($1, 'w', 'x')",
        "complete_batch($1, 'w')",
    ];
    let settle = |session: &mut Client, settlement: &str| {
        let claimed = session.claim("w", 10);
        let ids: Vec<_> = claimed.iter().map(|event| format!("'{}'", event.id)).collect();
        let call = settlement.replace("$1", &format!("ARRAY[{}]::uuid[]", ids.join(", ")));
        buffers(session, &format!("SELECT FROM outbox_{call}"))
    };
    for settlement in settlements {
        settle(&mut session, settlement);
    }
    // Nobody waits for these, and no plan is made anew for them.
    other.run(
        "INSERT INTO outbox_event
             (aggregate_type, aggregate_id, event_type, payload, payload_hash, status, attempt_count)
         SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64), 'completed', 1
         FROM generate_series(1, 50000)",
    );
    for settlement in settlements {
        let (touched, rows) = settle(&mut session, settlement);
        assert_eq!(rows, 10, "{settlement}");
        assert!(touched <= 60 * rows, "{touched} buffers for {rows} events: {settlement}");
    }
}

/// Calls everything once, so that its statements are planned; nothing stays.
fn warm_up_on_nothing(session: &mut Client) {
    session.run("BEGIN");
    for tenant in [None, Some(Uuid::from_u128(3))] {
        let event = Event { tenant, ..Event::keyed("warm") };
        session.enqueue(&event);
        session.enqueue(&event);
    }
    let claimed = session.claim("w", 2);
    session.complete(claimed[0].id, "w");
    session.fail(claimed[1].id, "w", 1);
    session.run("ROLLBACK");
}

#[test]
fn an_analyze_of_a_drained_table_in_mid_session_changes_no_plan_for_the_worse() {
    let database = Database::with_extension();
    let mut recorder = Recorder::start(&database);
    let mut other = database.session();
    fill(&mut other, 1_000);
    everything_seeks(&mut recorder, "before");
    other.run("DELETE FROM outbox_event");
    // As autovacuum does it: every plan on the table is made anew.
    other.run("VACUUM ANALYZE outbox_event");
    warm_up_on_nothing(&mut recorder.session);
    fill(&mut other, 100_000);
    everything_seeks(&mut recorder, "after");
    touches_few_buffers(&mut recorder.session);
}

#[test]
fn reclaiming_expired_leases_seeks_too() {
    let database = Database::with_extension();
    let mut session = database.session();
    fill(&mut session, 50_000);
    session.claim("crashed", 100);
    let mut recorder = Recorder::start(&database);
    let (claimed, plans) = recorder.plans(|session| session.claim_within("w", 50, support::outbox::EXPIRED));
    assert_eq!(claimed[0].attempt, 2);
    seek(&plans);
    let (_, plans) = recorder.plans(|session| {
        session.run("SELECT FROM outbox_claim_batch('w', 50, '1 microsecond', max_attempts => 1)");
    });
    assert!(plans.len() >= 3, "a scan, a take and a burial");
    seek(&plans);
}

#[test]
fn a_users_planner_settings_are_as_before_after_a_call_and_after_an_error() {
    let database = Database::with_extension();
    let mut session = database.session();
    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
                    WHERE name LIKE 'enable%' OR name IN ('plan_cache_mode', 'jit')";
    session.run("SET plan_cache_mode = force_custom_plan; SET jit = on");
    let before: String = session.value(settings, &[]);
    let id = session.enqueue(&Event::keyed("k"));
    session.refused("SELECT outbox_enqueue(NULL, 'x', gen_random_uuid(), 'order.created', 'k', '2')", &[]);
    session.claim_one("w");
    session.refused_complete(id, "x", None);
    session.run("ALTER TABLE outbox_event RENAME COLUMN locked_at TO renamed");
    assert_eq!(session.refused("SELECT * FROM outbox_claim_batch('w')", &[]).sqlstate, "42703");
    assert_eq!(session.value::<String>(settings, &[]), before);
}

/// The rows of the table that the backend has updated, and how many of these updates were HOT; what they grow by
/// within a transaction is right, since the server takes the numbers over when one ends.
fn updates(session: &mut Client) -> (i64, i64) {
    let row = session
        .query_one(
            "SELECT pg_stat_get_xact_tuples_updated('outbox_event'::regclass),
                    pg_stat_get_xact_tuples_hot_updated('outbox_event'::regclass)",
            &[],
        )
        .expect("the transaction's statistics");
    (row.get(0), row.get(1))
}

#[test]
fn claims_are_hot_updates_in_a_steady_flow() {
    let database = Database::with_extension();
    let mut session = database.session();
    let (mut claims, mut hot) = (0, 0);
    for _ in 0..60 {
        session.enqueue_many(100);
        session.run("BEGIN");
        let before = updates(&mut session);
        let claimed = support::outbox::ids(&session.claim("w", 100));
        let after = updates(&mut session);
        session.run("COMMIT");
        claims += after.0 - before.0;
        hot += after.1 - before.1;
        session
            .execute("SELECT outbox_complete(id, 'w') FROM unnest($1::uuid[]) AS id", &[&claimed])
            .expect("the worker holds the leases");
    }
    assert_eq!(claims, 6_000);
    assert!(hot * 10 >= claims * 9, "{hot} of {claims} claims were HOT");
}

#[test]
fn an_empty_claim_assigns_no_transaction_id() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(5);
    session.claim("other", 3);
    session
        .run("UPDATE outbox_event SET available_at = clock_timestamp() + '1 day' WHERE status = 'pending'");
    session.run("BEGIN");
    assert_eq!(session.claim("w", 100), []);
    let assigned: Option<String> = session.value("SELECT pg_current_xact_id_if_assigned()::text", &[]);
    assert_eq!(assigned, None);
}

#[test]
fn claiming_and_completing_large_payloads_leaves_their_toast_table_as_it_is() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, payload)
         FROM (SELECT jsonb_agg(encode(sha256(n::text::bytea), 'base64')) AS payload
               FROM generate_series(1, 2100) AS n) AS made, generate_series(1, 300)",
    );
    let toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'outbox_event'::regclass";
    let before: i64 = session.value(toast, &[]);
    assert!(before > 300 * 80_000, "the payloads are stored apart: {before} bytes");
    // The payloads stay with the server: what is to be seen happens there.
    session.run(
        "SELECT outbox_complete(id, 'w', attempt_count) FROM outbox_claim_batch('w', 200);
         SELECT outbox_fail(id, 'w', 'oops', next_attempt => clock_timestamp()) FROM outbox_claim_batch('w', 100);
         SELECT outbox_complete(id, 'w', attempt_count) FROM outbox_claim_batch('w', 100)",
    );
    assert_eq!(session.count("completed"), 300);
    assert_eq!(session.value::<i64>(toast, &[]), before);
}
