//! Claiming by several workers: every event to one of them, none lost, in order, and never waiting.

use std::collections::HashSet;
use support::outbox::ids;
use support::refusal::Refusal;
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid, crowd};

/// Claims and completes until nothing is due; what was completed.
fn drain(worker: &str, session: &mut Client) -> Vec<Uuid> {
    let mut done = Vec::new();
    loop {
        let batch = ids(&session.claim(worker, 100));
        if batch.is_empty() {
            return done;
        }
        session
            .execute("SELECT outbox_complete(id, $2, 1) FROM unnest($1::uuid[]) AS id", &[&batch, &worker])
            .expect("the worker holds the leases");
        done.extend(batch);
    }
}

#[test]
fn eight_workers_drain_twenty_thousand_events_each_exactly_once() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(20_000);
    let done: Vec<Uuid> =
        crowd::each(&database, 8, |number, client| drain(&format!("worker {number}"), client))
            .into_iter()
            .flatten()
            .collect();
    assert_eq!(done.len(), 20_000);
    assert_eq!(done.iter().collect::<HashSet<_>>().len(), 20_000);
    let claimed_once: i64 = session
        .value("SELECT count(*) FROM outbox_event WHERE status = 'completed' AND attempt_count = 1", &[]);
    assert_eq!(claimed_once, 20_000);
}

#[test]
fn workers_and_producers_side_by_side_lose_nothing() {
    let database = Database::with_extension();
    let answers = crowd::each(&database, 6, |number, session| {
        if number % 2 == 0 {
            for _ in 0..100 {
                session.enqueue_many(10);
            }
            Vec::new()
        } else {
            drain(&format!("worker {number}"), session)
        }
    });
    let mut session = database.session();
    let late = drain("the last", &mut session);
    assert_eq!(answers.concat().len() + late.len(), 3_000);
    assert_eq!(session.count("completed"), 3_000);
}

#[test]
fn a_claim_neither_waits_for_another_open_claim_nor_returns_its_events() {
    let database = Database::with_extension();
    let (mut first, mut second) = (database.session(), database.session());
    first.enqueue_many(30);
    first.run("BEGIN");
    let held = ids(&first.claim("first", 10));
    second.run("SET lock_timeout = '1ms'");
    let others = ids(&second.claim("second", 100));
    assert_eq!((held.len(), others.len()), (10, 20));
    assert!(held.iter().all(|id| !others.contains(id)));
    assert_eq!(second.claim("second", 100), []);
    first.run("COMMIT");
    assert_eq!(second.claim("second", 100), []);
    assert_eq!(first.count("processing"), 30);
}

#[test]
fn a_claim_that_is_rolled_back_never_was() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    let before = session.row(id);
    session.run("BEGIN");
    assert_eq!(session.claim_one("w").attempt, 1);
    session.run("ROLLBACK");
    assert_eq!(session.row(id), before);

    session.run("BEGIN; SAVEPOINT s");
    session.claim_one("w");
    session.run("ROLLBACK TO s");
    assert_eq!(session.row(id), before);
    assert_eq!(session.claim_one("w").attempt, 1);
    session.run("COMMIT");
    assert_eq!((session.status(id), session.attempts(id)), ("processing".into(), 1));
}

#[test]
fn a_thousand_events_of_one_transaction_drain_in_the_order_they_were_enqueued() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(1_000);
    let mut drained = Vec::new();
    // Batches of a size that does not divide the whole.
    while drained.len() < 1_000 {
        drained.extend(
            session.claim("w", 33).into_iter().map(|event| event.payload.parse::<i32>().expect("a number")),
        );
    }
    assert_eq!(drained, (1..=1_000).collect::<Vec<_>>());
}

#[test]
fn a_claim_returns_its_events_in_the_order_of_availability_creation_and_id() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, available_at, created_at)
         SELECT 'order', gen_random_uuid(), 'order.created', to_jsonb(n),
                '2024-01-01'::timestamptz + (n % 3) * '1 hour'::interval,
                '2024-01-01'::timestamptz - (n % 5) * '1 hour'::interval
         FROM generate_series(1, 60) AS n",
    );
    let expected: Vec<Uuid> =
        session.column("SELECT id FROM outbox_event ORDER BY available_at, created_at, id", &[]);
    let mut claimed = ids(&session.claim("w", 25));
    claimed.extend(ids(&session.claim("w", 100)));
    assert_eq!(claimed, expected);
}

#[test]
fn an_event_that_commits_behind_later_ones_is_claimed_all_the_same() {
    let database = Database::with_extension();
    let (mut slow, mut session) = (database.session(), database.session());
    slow.run("BEGIN");
    let late = slow.enqueue(&Event::default());
    session.enqueue_many(50);
    assert_eq!(drain("w", &mut session).len(), 50);
    slow.run("COMMIT");
    assert_eq!(ids(&session.claim("w", 10)), [late]);
}

#[test]
fn an_event_of_a_prepared_transaction_is_claimed_once_that_is_committed() {
    let database = Database::with_extension();
    let mut session = database.session();
    let gid = database.dsn();
    session.run("BEGIN");
    let id = session.enqueue(&Event::default());
    session.run(&format!("PREPARE TRANSACTION '{gid}'"));
    drop(session);

    let mut session = database.session();
    session.enqueue_many(10);
    assert_eq!(drain("w", &mut session).len(), 10);
    session.run(&format!("COMMIT PREPARED '{gid}'"));
    assert_eq!(ids(&session.claim("w", 10)), [id]);
}

#[test]
fn a_prepared_claim_holds_its_events_and_ends_as_it_is_told() {
    let database = Database::with_extension();
    let gid = database.dsn();
    let mut other = database.session();
    let id = other.enqueue(&Event::default());
    for (end, status) in [("ROLLBACK", "pending"), ("COMMIT", "processing")] {
        let mut worker = database.session();
        worker.run("BEGIN");
        worker.claim_one("w");
        worker.run(&format!("PREPARE TRANSACTION '{gid}'"));
        drop(worker);
        assert_eq!(other.claim("x", 10), []);
        other.run(&format!("{end} PREPARED '{gid}'"));
        assert_eq!(other.status(id), status);
    }
    other.complete(id, "w");
}

#[test]
fn a_claim_of_five_takes_five_when_statistics_say_there_is_one_row() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(1);
    session.run("VACUUM ANALYZE outbox_event");
    session.enqueue_many(60);
    assert_eq!(session.claim("w", 5).len(), 5);
    assert_eq!(session.count("processing"), 5);
    for _ in 0..11 {
        assert_eq!(session.claim("w", 5).len(), 5);
    }
    assert_eq!(session.claim("w", 5).len(), 1);
}

#[test]
fn events_of_the_future_wait_for_their_time() {
    let database = Database::with_extension();
    let mut session = database.session();
    let tomorrow: String = session.value("SELECT (now() + '1 day')::text", &[]);
    session.enqueue(&Event { available_at: Some(&tomorrow), ..Event::default() });
    let due = session.enqueue(&Event { available_at: Some("2020-01-01 00:00:00Z"), ..Event::default() });
    assert_eq!(ids(&session.claim("w", 10)), [due]);
    assert_eq!(session.claim("w", 10), []);
}

#[test]
fn a_claim_does_not_block_rows_that_refer_to_the_event() {
    let database = Database::with_extension();
    let (mut worker, mut writer) = (database.session(), database.session());
    let id = worker.enqueue(&Event::default());
    writer.run("CREATE TABLE delivery (event uuid REFERENCES outbox_event); SET lock_timeout = '1s'");
    worker.run("BEGIN");
    worker.claim_one("w");
    writer.execute("INSERT INTO delivery VALUES ($1)", &[&id]).expect("the claim does not block it");
    worker.run("COMMIT");
}

#[test]
fn one_tenants_backlog_does_not_hold_up_another_for_longer_than_its_turn() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(500);
    let other = session.enqueue(&Event { tenant: Some(Uuid::from_u128(9)), ..Event::default() });
    session.enqueue_many(500);
    let first = ids(&session.claim("w", 501));
    assert_eq!(first.last(), Some(&other));
}

/// A policy that halts a scan at an event of type "gate" for as long as somebody holds the advisory lock.
const GATE: &str = "
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO role_name;
    GRANT SELECT, UPDATE ON outbox_event TO role_name;
    CREATE FUNCTION gate(event_type text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF event_type = 'gate' THEN
            PERFORM pg_advisory_xact_lock_shared(1);
        END IF;
        RETURN true;
    END $$;
    ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
    CREATE POLICY gate ON outbox_event USING (gate(event_type))";

#[test]
fn events_that_change_under_a_running_claim_are_claimed_as_they_have_become() {
    let database = Database::with_extension();
    let role = database.role("worker");
    let mut session = database.session();
    session.run(&GATE.replace("role_name", &role));
    let gate = session.enqueue(&Event { event_type: "gate", ..Event::default() });
    let [changed, postponed, claimed] = [0; 3].map(|_| session.enqueue(&Event::default()));
    session.run("SELECT pg_advisory_lock(1)");
    let call = HeldUp::start(&database, database.session_as(&role), |worker| worker.claim("w", 10));
    // The scan has its snapshot, and has not seen these events yet.
    session.run(&format!(
        "UPDATE outbox_event SET payload = '\"changed\"' WHERE id = '{changed}';
         UPDATE outbox_event SET available_at = clock_timestamp() + '1 day' WHERE id = '{postponed}'"
    ));
    session.run(&format!("UPDATE outbox_event SET status = 'completed' WHERE id = '{claimed}'"));
    session.run("SELECT pg_advisory_unlock(1)");
    let taken = call.answer().1;
    assert_eq!(ids(&taken), [gate, changed]);
    assert_eq!(taken[1].payload, "\"changed\"");
    assert_eq!(session.count("processing"), 2);
}

#[test]
fn under_repeatable_read_a_claim_that_comes_too_late_is_told_to_retry() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let (mut early, mut late) = (database.session(), database.session());
        early.enqueue_many(2);
        late.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM outbox_event"));
        early.claim("early", 1);
        assert_eq!(Refusal::expect(late.try_claim("late", 2, "1 hour"), level).sqlstate, "40001");
        late.run("ROLLBACK");
        assert_eq!(late.claim("late", 2).len(), 1);
    }
}

#[test]
fn a_worker_that_vanishes_in_an_open_claim_gives_its_events_back() {
    let database = Database::with_extension();
    let (mut worker, mut session) = (database.session(), database.session());
    let id = session.enqueue(&Event::default());
    worker.run("BEGIN");
    worker.claim_one("w");
    session
        .execute("SELECT pg_terminate_backend($1, 60000)", &[&worker.backend()])
        .expect("it is terminated");
    let again = session.claim_one("x");
    assert_eq!((again.id, again.attempt), (id, 1));
}
