//! Purging and replaying beside everything else that goes on: workers, producers, locks, held snapshots.

use std::sync::atomic::{AtomicBool, Ordering};
use support::crowd;
use support::outbox::ids;
use support::plan::{Plan, Recorder, buffers};
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// Events that have ended, quickly: the hash is given, since what it says does not matter here.
fn fill(session: &mut Client, status: &str, events: i32) {
    let ended = if status == "dead" { "dead_at" } else { "completed_at" };
    session.run(&format!(
        "INSERT INTO outbox_event
             (aggregate_type, aggregate_id, event_type, payload, payload_hash, status, {ended})
         SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64), '{status}',
                clock_timestamp() - interval '1 hour'
         FROM generate_series(1, {events})"
    ));
}

fn purge(session: &mut Client, max_events: i32) -> i64 {
    session.value("SELECT outbox_purge('0', $1)", &[&max_events])
}

fn replay(session: &mut Client, max_events: i32) -> i64 {
    session.value("SELECT outbox_replay(max_events => $1)", &[&max_events])
}

/// An event that has been completed.
fn completed(session: &mut Client, event: &Event) -> Uuid {
    let id = session.enqueue(event);
    assert_eq!(session.claim_one("w").id, id);
    session.complete(id, "w");
    id
}

#[test]
fn purging_beside_workers_deletes_what_is_completed_and_loses_nothing() {
    const EVENTS: i32 = 2_000;
    let database = Database::with_extension();
    database.session().enqueue_many(EVENTS);
    let working = AtomicBool::new(true);
    let done = crowd::each(&database, 6, |number, session| {
        let mut done = 0;
        if number < 2 {
            while working.load(Ordering::Relaxed) {
                done += purge(session, 50);
            }
            return done;
        }
        let worker = format!("worker {number}");
        loop {
            let claimed = session.claim(&worker, 20);
            claimed.iter().for_each(|event| session.complete(event.id, &worker));
            done += claimed.len() as i64;
            if claimed.is_empty() && session.count("pending") + session.count("processing") == 0 {
                working.store(false, Ordering::Relaxed);
                return done;
            }
        }
    });
    assert_eq!(done[2..].iter().sum::<i64>(), i64::from(EVENTS), "each event was completed once");
    let mut session = database.session();
    let rest = session.count("completed");
    assert_eq!(done[..2].iter().sum::<i64>() + rest, i64::from(EVENTS), "each was deleted once");
    assert_eq!(purge(&mut session, EVENTS), rest);
}

#[test]
fn a_purge_and_the_functions_of_workers_do_not_wait_for_each_other() {
    let database = Database::with_extension();
    let (mut worker, mut operator) = (database.session(), database.session());
    worker.enqueue_many(4);
    let claimed = ids(&worker.claim("w", 3));
    worker.complete(claimed[0], "w");
    worker.run("BEGIN");
    worker.complete(claimed[1], "w");
    assert_eq!(purge(&mut operator, 10), 1, "the completion that is not committed is none yet");
    worker.run("COMMIT");
    operator.run("BEGIN");
    assert_eq!(purge(&mut operator, 10), 1);
    worker.complete(claimed[2], "w");
    let next = worker.claim_one("w").id;
    assert_eq!(worker.fail(next, "w", 0), "dead");
    assert_eq!(replay(&mut worker, 10), 1);
    worker.enqueue_many(1);
    assert_eq!(worker.claim("w", 10).len(), 2);
    operator.run("COMMIT");
    assert_eq!(purge(&mut operator, 10), 1);
}

#[test]
fn a_purge_passes_over_what_is_locked_and_comes_back_for_it() {
    let database = Database::with_extension();
    let (mut holder, mut operator) = (database.session(), database.session());
    fill(&mut holder, "completed", 3);
    for lock in ["FOR KEY SHARE", "FOR UPDATE"] {
        holder.run(&format!("BEGIN; SELECT FROM outbox_event ORDER BY completed_at LIMIT 1 {lock}"));
        assert_eq!(purge(&mut operator, 1), 1, "{lock}");
        holder.run("ROLLBACK");
    }
    assert_eq!(purge(&mut operator, 10), 1);
    assert_eq!(holder.count("completed"), 0);
}

#[test]
fn a_purge_that_is_rolled_back_is_made_good_by_the_next() {
    let database = Database::with_extension();
    let mut session = database.session();
    fill(&mut session, "completed", 30);
    session.run("BEGIN; SELECT outbox_purge('0', 10); ROLLBACK");
    assert_eq!(session.count("completed"), 30);
    session.run("BEGIN; SELECT outbox_purge('0', 10); PREPARE TRANSACTION 'purge'");
    assert_eq!(purge(&mut session, 10), 10, "beside the ten that are as good as deleted");
    session.run("ROLLBACK PREPARED 'purge'");
    let bites: Vec<i64> = (0..3).map(|_| purge(&mut session, 10)).collect();
    assert_eq!(bites, [10, 10, 0]);
}

#[test]
fn purges_side_by_side_share_the_work() {
    let database = Database::with_extension();
    fill(&mut database.session(), "completed", 3_000);
    let deleted = crowd::each(&database, 3, |_, session| {
        let bites = std::iter::from_fn(|| Some(purge(session, 100)).filter(|bite| *bite > 0));
        bites.sum::<i64>()
    });
    assert_eq!(deleted.iter().sum::<i64>(), 3_000);
}

#[test]
fn a_key_that_is_used_while_its_event_is_purged_waits_and_becomes_a_new_event() {
    let database = Database::with_extension();
    let mut operator = database.session();
    let first = completed(&mut operator, &Event::keyed("k"));
    operator.run("BEGIN");
    assert_eq!(purge(&mut operator, 10), 1);
    let producer =
        HeldUp::start(&database, database.session(), |session| session.enqueue(&Event::keyed("k")));
    operator.run("COMMIT");
    let (mut session, second) = producer.answer();
    assert_ne!(second, first);
    assert_eq!(session.status(second), "pending");
}

#[test]
fn a_key_that_is_used_while_its_event_is_purged_in_vain_is_the_event_that_it_was() {
    let database = Database::with_extension();
    let mut operator = database.session();
    let first = completed(&mut operator, &Event::keyed("k"));
    operator.run("BEGIN");
    assert_eq!(purge(&mut operator, 10), 1);
    let producer =
        HeldUp::start(&database, database.session(), |session| session.enqueue(&Event::keyed("k")));
    operator.run("ROLLBACK");
    assert_eq!(producer.answer().1, first);
}

#[test]
fn a_key_that_is_used_and_purged_by_many_at_once_always_has_an_answer() {
    let database = Database::with_extension();
    let deleted = crowd::each(&database, 4, |number, session| {
        let mut deleted = 0;
        for _ in 0..300 {
            if number < 2 {
                session.enqueue(&Event::keyed("k"));
            } else {
                let worker = format!("worker {number}");
                session.claim(&worker, 10).iter().for_each(|event| session.complete(event.id, &worker));
                deleted += purge(session, 10);
            }
        }
        deleted
    });
    assert!(deleted.iter().sum::<i64>() > 10, "{deleted:?}");
}

#[test]
fn the_first_event_is_completed_again_after_a_purge_of_its_key() {
    let database = Database::with_extension();
    let mut session = database.session();
    let first = completed(&mut session, &Event::keyed("k"));
    assert_eq!(purge(&mut session, 10), 1);
    let second = completed(&mut session, &Event::keyed("k"));
    assert_ne!(second, first);
}

#[test]
fn rows_that_refer_to_an_event_go_with_it_or_keep_it() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = completed(&mut session, &Event::default());
    session.run(&format!(
        "CREATE TABLE delivery (event uuid REFERENCES outbox_event ON DELETE CASCADE);
         INSERT INTO delivery VALUES ('{id}')"
    ));
    assert_eq!(purge(&mut session, 10), 1);
    assert_eq!(session.value::<i64>("SELECT count(*) FROM delivery", &[]), 0);
    let id = completed(&mut session, &Event::default());
    session.run(&format!(
        "CREATE TABLE receipt (event uuid REFERENCES outbox_event); INSERT INTO receipt VALUES ('{id}')"
    ));
    assert_eq!(session.refused("SELECT outbox_purge('0')", &[]).sqlstate, "23503");
    assert_eq!(session.status(id), "completed");
}

#[test]
fn under_a_tenant_policy_a_purge_and_a_replay_touch_the_tenants_own_events_only() {
    let database = Database::with_extension();
    let mut session = database.session();
    let role = database.role("operator");
    session.run(&format!(
        "INSERT INTO outbox_event (tenant_id, aggregate_type, aggregate_id, event_type, payload, status)
         SELECT tenant::uuid, 'order', gen_random_uuid(), 'order.created', '1', status
         FROM unnest(ARRAY['00000000-0000-0000-0000-00000000000a', '00000000-0000-0000-0000-00000000000b']) AS tenant,
              unnest(ARRAY['completed', 'dead']) AS status;
         GRANT EXECUTE ON FUNCTION outbox_purge, outbox_replay TO {role};
         GRANT SELECT, UPDATE, DELETE ON outbox_event TO {role};
         ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid)"
    ));
    let mut operator = database.session_as(&role);
    for tenant in ["00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"] {
        operator.run(&format!("SET app.tenant = '{tenant}'"));
        assert_eq!(replay(&mut operator, 10), 1);
        assert_eq!(purge(&mut operator, 10), 1);
        assert_eq!([replay(&mut operator, 10), purge(&mut operator, 10)], [0, 0]);
        let rest = format!(
            "SELECT count(*) FROM outbox_event WHERE tenant_id <> '{tenant}' AND status <> 'pending'"
        );
        let expected = if tenant.ends_with('a') { 2 } else { 0 };
        assert_eq!(session.value::<i64>(&rest, &[]), expected);
    }
}

#[test]
fn the_rights_that_are_documented_are_enough_and_show_no_payload() {
    let database = Database::with_extension();
    let mut session = database.session();
    let [replayer, purger, viewer] = ["replayer", "purger", "viewer"].map(|name| database.role(name));
    session.run(&format!(
        "GRANT EXECUTE ON FUNCTION outbox_replay TO {replayer};
         GRANT SELECT (ctid, id, event_type, tenant_id, status, attempt_count, dead_at),
               UPDATE (status, forgiven_attempts, available_at, dead_at, updated_at) ON outbox_event TO {replayer};
         GRANT EXECUTE ON FUNCTION outbox_purge TO {purger};
         GRANT SELECT (ctid, id, status, completed_at, dead_at), UPDATE (updated_at), DELETE
               ON outbox_event TO {purger};
         GRANT SELECT ON outbox_stats TO {viewer};
         GRANT SELECT (id, event_type, status, available_at, locked_at, completed_at, dead_at)
               ON outbox_event TO {viewer}"
    ));
    fill(&mut session, "completed", 2);
    fill(&mut session, "dead", 3);
    let mut session = database.session_as(&replayer);
    assert_eq!(replay(&mut session, 1), 1);
    let by_id = "SELECT outbox_replay(ARRAY(SELECT id FROM outbox_event), 'order.created', max_events => 1)";
    assert_eq!(session.value::<i64>(by_id, &[]), 1);
    assert_eq!(session.refused("SELECT payload FROM outbox_event", &[]).sqlstate, "42501");
    let mut session = database.session_as(&purger);
    assert_eq!(session.value::<i64>("SELECT outbox_purge('0', 10, '{completed, dead}')", &[]), 3);
    let mut session = database.session_as(&viewer);
    assert_eq!(session.value::<i64>("SELECT ready FROM outbox_stats", &[]), 2);
}

#[test]
fn two_operators_who_replay_at_once_share_the_work() {
    let database = Database::with_extension();
    let (mut one, mut other) = (database.session(), database.session());
    fill(&mut one, "dead", 5);
    one.run("BEGIN");
    assert_eq!(replay(&mut one, 3), 3);
    assert_eq!(replay(&mut other, 10), 2);
    one.run("COMMIT");
    assert_eq!(one.count("pending"), 5);
}

#[test]
fn a_replayed_event_is_claimed_by_workers_that_have_long_passed_it() {
    let database = Database::with_extension();
    let (mut worker, mut operator) = (database.session(), database.session());
    let id = worker.enqueue(&Event::default());
    worker.claim_one("w");
    worker.fail(id, "w", 0);
    for _ in 0..5 {
        worker.enqueue_many(1);
        worker.claim_one("w");
    }
    assert_eq!(replay(&mut operator, 10), 1);
    assert_eq!(ids(&worker.claim("w", 10)), [id]);
}

#[test]
fn with_an_old_snapshot_what_has_changed_since_is_refused_and_not_guessed_at() {
    let database = Database::with_extension();
    let (mut old, mut other) = (database.session(), database.session());
    for (status, call) in [("completed", "SELECT outbox_purge('0')"), ("dead", "SELECT outbox_replay()")] {
        fill(&mut other, status, 1);
        old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox_event");
        other.run("UPDATE outbox_event SET headers = '{}'");
        assert_eq!(old.refused(call, &[]).sqlstate, "40001", "{call}");
        old.run("ROLLBACK");
        assert_eq!(old.value::<i64>(call, &[]), 1, "{call}");
        other.run("DELETE FROM outbox_event");
    }
}

#[test]
fn a_purge_is_refused_in_a_read_only_transaction() {
    let database = Database::with_extension();
    let mut session = database.session();
    fill(&mut session, "completed", 1);
    session.run("SET default_transaction_read_only = on");
    assert_eq!(session.refused("SELECT outbox_purge('0')", &[]).sqlstate, "25006");
    assert_eq!(session.refused("SELECT outbox_replay()", &[]).sqlstate, "25006");
}

/// The statement that looks for events stops early, and locks only what it returns.
fn stops_early(plans: &[Plan]) {
    let find = plans.iter().find(|plan| plan.kinds().contains(&"LockRows")).expect("what is found is locked");
    assert_eq!(find.kinds(), ["Aggregate", "Subquery Scan", "Limit", "LockRows", "Index Scan"]);
    plans.iter().for_each(|plan| assert!(plan.seeks(), "{:?} for {}", plan.kinds(), plan.query));
}

const CALLS: [&str; 6] = [
    "SELECT outbox_purge('0', 2)",
    "SELECT outbox_purge('0', 2, '{dead}')",
    "SELECT outbox_replay(max_events => 1)",
    "SELECT outbox_replay(event_type => 'order.created', max_events => 1)",
    "SELECT outbox_replay(tenant_id => gen_random_uuid())",
    "SELECT outbox_replay(event_type => 'order.created', tenant_id => gen_random_uuid())",
];

#[test]
fn every_plan_goes_along_an_index_and_stops_early_also_one_made_while_the_table_was_empty() {
    let database = Database::with_extension();
    let mut recorder = Recorder::start(&database);
    let mut session = database.session();
    session.run("VACUUM ANALYZE outbox_event");
    CALLS.iter().for_each(|call| recorder.session.run(call));
    fill(&mut session, "completed", 100_000);
    fill(&mut session, "dead", 20_000);
    for settings in ["", "SET plan_cache_mode = force_custom_plan", "SET enable_indexscan = off"] {
        recorder.session.run(settings);
        for call in CALLS {
            let (_, plans) = recorder.plans(|session| session.run(call));
            stops_early(&plans);
        }
        session.run("VACUUM ANALYZE outbox_event");
    }
}

#[test]
fn a_replay_by_ids_looks_for_these_and_no_others() {
    let database = Database::with_extension();
    let mut recorder = Recorder::start(&database);
    let mut session = database.session();
    let by_ids = "SELECT outbox_replay(ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 10)))";
    recorder.session.run(by_ids);
    fill(&mut session, "dead", 20_000);
    session.run("VACUUM ANALYZE outbox_event");
    let (_, plans) = recorder.plans(|session| session.run(by_ids));
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0].kinds(), ["Aggregate", "Subquery Scan", "Limit", "LockRows", "Sort", "Index Scan"]);
    let (touched, _) = buffers(&mut recorder.session, by_ids);
    assert!(touched <= 100, "{touched} buffers for ten ids");
}

#[test]
fn a_replay_costs_the_same_whatever_the_number_of_completed_events() {
    let database = Database::with_extension();
    let mut session = database.session();
    let mut cost = || {
        fill(&mut session, "dead", 10);
        session.run("SELECT outbox_replay(max_events => 5)"); // reads the catalogs and makes the plans
        (buffers(&mut session, "SELECT outbox_replay(max_events => 5)").0, session.count("dead"))
    };
    let (before, left) = cost();
    assert_eq!(left, 0);
    fill(&mut database.session(), "completed", 100_000);
    let (after, left) = cost();
    assert_eq!(left, 0);
    assert!(after <= before + 20, "{before} buffers among none, {after} among a hundred thousand");
}

/// The fewest buffers that one of many bites touches. A bite that looks behind itself touches more; no more
/// bites are taken once one touches few enough.
fn fewest_buffers(session: &mut Client, status: &str, enough: i64) -> i64 {
    let mut fewest = i64::MAX;
    for _ in 0..500 {
        fill(session, status, 100);
        let sql = format!("SELECT outbox_purge('0', 100, '{{{status}}}')");
        fewest = fewest.min(buffers(session, &sql).0);
        if fewest <= enough {
            break;
        }
    }
    fewest
}

#[test]
fn a_bite_costs_the_same_whatever_was_purged_before_it_under_a_held_snapshot() {
    for status in ["completed", "dead"] {
        let database = Database::with_extension();
        let (mut operator, mut holder) = (database.session(), database.session());
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox_event");
        let purge = format!("SELECT outbox_purge('0', 1000, '{{{status}}}')");
        operator.run(&purge); // reads the catalogs and makes the plans
        let first = fewest_buffers(&mut operator, status, 600);
        fill(&mut operator, status, 50_000);
        (0..50).for_each(|_| operator.run(&purge));
        let limit = first + first / 2;
        let last = fewest_buffers(&mut operator, status, limit);
        assert!(last <= limit, "{status}: a bite touched {first} buffers at first and {last} at last");

        // A new session knows nothing, and walks once.
        let mut fresh = database.session();
        fill(&mut fresh, status, 100);
        let (walked, _) = buffers(&mut fresh, &purge);
        assert!(walked > 10 * first, "{status}: there was little to walk past: {walked} buffers");
        let last = fewest_buffers(&mut fresh, status, limit);
        assert!(last <= limit, "{status}: {first} buffers at first and {last} in a new session");
        holder.run("COMMIT");
    }
}

#[test]
fn a_bite_costs_the_same_whatever_the_size_of_the_table() {
    let database = Database::with_extension();
    let mut session = database.session();
    let bite = "SELECT outbox_purge('0', 100)";
    session.run(bite);
    let mut cost = |events| {
        fill(&mut session, "completed", events);
        buffers(&mut session, bite).0
    };
    let small = cost(200);
    let large = cost(100_000);
    assert!(large <= small + small / 5, "{small} buffers in a small table, {large} in a large one");
}
