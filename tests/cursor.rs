//! The scan cursor among several sessions: a claim starts where the last one found work, and what lies behind
//! is found within the bound of docs/guarantees.md, in a queue polled idle as in one never empty.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::cluster::Cluster;
use support::outbox::{Claimed, EXPIRED, ids};
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid, crowd, waiting};

/// Sorts before all that a cursor has passed.
const PAST: &str = "2020-01-01 00:00:00Z";

const LONG: &str = "1 hour";

/// Generous, since it is only used up when a test fails: a sweep is due after max(200 ms, 20 × what the last
/// one cost).
const DEADLINE: Duration = Duration::from_secs(20);

/// What else there is to claim while one event is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Nothing: claims come back empty.
    Idle,
    /// More than is claimed: every batch comes back full.
    NeverEmpty,
}

impl Queue {
    const EITHER: [Self; 2] = [Self::Idle, Self::NeverEmpty];

    /// Claims, and completes what comes, until all these events have come.
    fn brings(self, worker: &mut Client, events: &[Uuid]) {
        self.brings_within(worker, LONG, events);
    }

    fn brings_within(self, worker: &mut Client, lock_timeout: &str, events: &[Uuid]) {
        let mut missing: HashSet<Uuid> = events.iter().copied().collect();
        let start = Instant::now();
        while !missing.is_empty() {
            assert!(start.elapsed() < DEADLINE, "{self:?}: {} events were passed over", missing.len());
            for event in self.claim(worker, lock_timeout) {
                missing.remove(&event.id);
            }
        }
    }

    /// One claim, and the completion of what came.
    fn claim(self, worker: &mut Client, lock_timeout: &str) -> Vec<Claimed> {
        if self == Self::NeverEmpty {
            worker.enqueue_many(2);
        }
        let claimed = worker.claim_within("w", 1, lock_timeout);
        assert!(self == Self::Idle || claimed.len() == 1, "there was an event to claim");
        claimed.iter().for_each(|event| worker.complete(event.id, "w"));
        claimed
    }
}

fn due_at(session: &mut Client, available_at: &str) -> Uuid {
    session.enqueue(&Event { available_at: Some(available_at), ..Event::default() })
}

/// A worker whose cursor has passed the past, and whatever is in the queue but locked.
fn ahead(database: &Database) -> Client {
    let mut worker = database.session();
    assert_eq!(worker.claim("w", 1), []);
    worker
}

/// Has a worker's cursor pass all that was enqueued until now and cannot be claimed: it stays 50 ms behind
/// the clock, so the clock has to go on.
fn pass(worker: &mut Client) {
    worker.run("SELECT pg_sleep(0.1)");
    assert_eq!(worker.claim("w", 1), []);
}

#[test]
fn an_event_that_commits_behind_the_cursor_is_found() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut worker, mut producer) = (ahead(&database), database.session());
        producer.run("BEGIN");
        let late = producer.enqueue(&Event::default());
        pass(&mut worker);
        producer.run("COMMIT");
        queue.brings(&mut worker, &[late]);
    }
}

#[test]
fn an_event_of_a_transaction_that_was_prepared_and_is_committed_later_is_found() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let gid = database.dsn();
        let (mut worker, mut producer) = (ahead(&database), database.session());
        producer.run("BEGIN");
        let late = producer.enqueue(&Event::default());
        producer.run(&format!("PREPARE TRANSACTION '{gid}'"));
        drop(producer);
        pass(&mut worker);
        worker.run(&format!("COMMIT PREPARED '{gid}'"));
        queue.brings(&mut worker, &[late]);
    }
}

/// How another worker's claim comes to nothing. Run in its session, then in the observer's.
const UNDONE: [(&str, &str); 4] = [
    ("ROLLBACK", ""),
    ("ROLLBACK TO s", ""),
    ("PREPARE TRANSACTION 'gid'", "ROLLBACK PREPARED 'gid'"),
    ("", "SELECT pg_terminate_backend(pid, 60000)"),
];

#[test]
fn a_claim_that_another_backend_gives_up_is_found() {
    for queue in Queue::EITHER {
        for (there, here) in UNDONE {
            let database = Database::with_extension();
            let gid = database.dsn();
            let (mut holder, mut worker) = (database.session(), database.session());
            let events = [0; 3].map(|_| due_at(&mut holder, PAST));
            holder.run("BEGIN; SAVEPOINT s");
            assert_eq!(holder.claim("holder", 3).len(), 3);
            assert_eq!(worker.claim("w", 1), []);
            let backend = holder.backend().to_string();
            holder.run(&there.replace("gid", &gid));
            worker.run(&here.replace("gid", &gid).replace("pid", &backend));
            queue.brings(&mut worker, &events);
        }
    }
}

/// How a worker's own claim comes to nothing, after BEGIN and a savepoint.
const OWN_UNDONE: [&str; 5] = [
    "ROLLBACK",
    "ROLLBACK TO s",
    "RELEASE s; ROLLBACK",
    "SAVEPOINT t; RELEASE t; ROLLBACK TO s",
    "PREPARE TRANSACTION 'gid'; ROLLBACK PREPARED 'gid'",
];

#[test]
fn a_claim_that_its_own_backend_gives_up_is_found_at_once() {
    for undone in OWN_UNDONE {
        let database = Database::with_extension();
        let mut worker = database.session();
        let events = [1, 2, 3, 4, 5].map(|day| due_at(&mut worker, &format!("2020-01-0{day} 00:00:00Z")));
        assert_eq!(ids(&worker.claim("w", 1)), events[..1]);
        worker.run("BEGIN; SAVEPOINT s");
        assert_eq!(ids(&worker.claim("w", 2)), events[1..3]);
        // One by one: not all of them may be in one message.
        undone.replace("gid", &database.dsn()).split("; ").for_each(|statement| worker.run(statement));
        assert_eq!(ids(&worker.claim("w", 1)), events[1..2], "after {undone}");
        worker.run("COMMIT");
        assert_eq!(ids(&worker.claim("w", 1)), events[2..3], "after {undone}");
        assert_eq!(ids(&worker.claim("w", 1)), events[3..4], "after {undone}");
    }
}

#[test]
fn a_claim_whose_transaction_fails_is_found_at_once() {
    let database = Database::with_extension();
    let mut worker = database.session();
    let events = [1, 2, 3].map(|day| due_at(&mut worker, &format!("2020-01-0{day} 00:00:00Z")));
    worker.run("BEGIN");
    assert_eq!(ids(&worker.claim("w", 2)), events[..2]);
    assert_eq!(worker.refused("SELECT 1 / 0", &[]).sqlstate, "22012");
    worker.run("ROLLBACK");
    assert_eq!(ids(&worker.claim("w", 1)), events[..1]);
    // A claim that is part of the statement that fails.
    assert_eq!(
        worker.refused("SELECT 1 / (attempt_count - 1) FROM outbox_claim_batch('w', 1)", &[]).sqlstate,
        "22012"
    );
    assert_eq!(ids(&worker.claim("w", 1)), events[1..2]);
    assert_eq!(ids(&worker.claim("w", 1)), events[2..]);
}

#[test]
fn a_claim_that_was_prepared_and_is_rolled_back_later_is_found() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let gid = database.dsn();
        let mut worker = database.session();
        let events = [0; 3].map(|_| due_at(&mut worker, PAST));
        worker.run("BEGIN");
        assert_eq!(worker.claim("w", 3).len(), 3);
        worker.run(&format!("PREPARE TRANSACTION '{gid}'"));
        assert_eq!(worker.claim("w", 1), [], "they are locked");
        worker.run(&format!("ROLLBACK PREPARED '{gid}'"));
        queue.brings(&mut worker, &events);
    }
}

#[test]
fn events_that_are_put_into_the_past_are_found() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut worker, mut hand) = (ahead(&database), database.session());
        let tomorrow: String = hand.value("SELECT (now() + '1 day')::text", &[]);
        let postponed = due_at(&mut hand, &tomorrow);
        let [failed, dead] = [0; 2].map(|_| hand.enqueue(&Event::default()));
        assert_eq!(hand.claim("hand", 2).len(), 2);
        hand.run(&format!("SELECT outbox_fail('{failed}', 'hand', 'oops', next_attempt => '{PAST}')"));
        assert_eq!(hand.fail(dead, "hand", 1), "dead");
        let reschedule = format!("UPDATE outbox_event SET status = 'pending', available_at = '{PAST}'");
        hand.execute(&format!("{reschedule} WHERE id <> $1"), &[&failed]).expect("they are rescheduled");
        queue.brings(&mut worker, &[postponed, failed, dead]);
    }
}

#[test]
fn events_that_are_inserted_as_long_due_are_found() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut worker, mut producer) = (ahead(&database), database.session());
        let enqueued = due_at(&mut producer, PAST);
        let inserted: Uuid = producer.value(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, available_at)
             VALUES ('order', gen_random_uuid(), 'order.created', '1', '4713-01-01 00:00:00Z BC')
             RETURNING id",
            &[],
        );
        queue.brings(&mut worker, &[enqueued, inserted]);
    }
}

#[test]
fn a_lease_that_expires_behind_the_cursor_is_found_when_it_has_and_not_before() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut worker, mut crashes) = (database.session(), database.session());
        let event = due_at(&mut crashes, PAST);
        crashes.claim_one("crashes");
        let leased = "SELECT extract(epoch FROM locked_at)::float8 FROM outbox_event WHERE id = $1";
        let before: f64 = crashes.value(leased, &[&event]);
        queue.brings_within(&mut worker, "400 milliseconds", &[event]);
        let after: f64 = crashes.value(
            "SELECT extract(epoch FROM completed_at)::float8 FROM outbox_event WHERE id = $1",
            &[&event],
        );
        assert!(after - before > 0.4, "taken over after {} s", after - before);
        assert_eq!(crashes.attempts(event), 2);
    }
}

#[test]
fn each_backend_has_a_cursor_of_its_own() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut first, mut second, mut hand) = (database.session(), database.session(), database.session());
        let events: Vec<Uuid> =
            (1..=30).map(|day| due_at(&mut hand, &format!("2020-01-{day:02} 00:00:00Z"))).collect();
        assert_eq!(ids(&first.claim("first", 10)), events[..10]);
        assert_eq!(ids(&second.claim("second", 10)), events[10..20]);
        assert_eq!(ids(&first.claim("first", 5)), events[20..25]);
        // One behind both, one between them, given back without their knowledge.
        let given_back = [events[2], events[22]];
        hand.execute("UPDATE outbox_event SET status = 'pending' WHERE id = ANY ($1)", &[&&given_back[..]])
            .expect("they are given back");
        queue.brings(&mut first, &given_back[..1]);
        queue.brings(&mut second, &given_back[1..]);
    }
}

#[test]
fn a_lease_has_expired_for_the_impatient_alone() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let (mut patient, mut impatient) = (database.session(), database.session());
        let events = [0; 3].map(|_| due_at(&mut patient, PAST));
        assert_eq!(patient.claim("crashes", 3).len(), 3);
        // Both look behind themselves for a while, side by side.
        assert_eq!(impatient.claim("w", 1), []);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            for worker in [&mut patient, &mut impatient] {
                let claimed = queue.claim(worker, LONG);
                assert!(claimed.iter().all(|event| !events.contains(&event.id)), "nobody's lease expired");
            }
        }
        queue.brings_within(&mut impatient, EXPIRED, &events);
        assert!(events.iter().all(|event| patient.attempts(*event) == 2));
    }
}

#[test]
fn from_repeatable_read_on_the_whole_queue_is_looked_at() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let mut worker = ahead(&database);
        let behind = [0; 2].map(|_| due_at(&mut worker, PAST));
        worker.enqueue_many(3);
        for _ in 0..2 {
            worker.run(&format!("BEGIN ISOLATION LEVEL {level}"));
            let claimed = worker.claim_one("w");
            assert!(behind.contains(&claimed.id), "{level}: those behind come first");
            worker.run("COMMIT");
        }
    }
}

#[test]
fn an_old_snapshot_that_sees_nothing_does_not_move_the_cursor() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let (mut worker, mut producer) = (database.session(), database.session());
        worker.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM outbox_event"));
        let unseen = due_at(&mut producer, PAST);
        producer.enqueue_many(1);
        assert_eq!(worker.claim("w", 1), []);
        worker.run("COMMIT");
        assert_eq!(ids(&worker.claim("w", 1)), [unseen]);
    }
}

const TENANTS: &str = "
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO role_name;
    GRANT SELECT, UPDATE ON outbox_event TO role_name;
    ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own_tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid)";

#[test]
fn under_a_policy_by_tenant_each_tenants_whole_queue_is_looked_at() {
    let database = Database::with_extension();
    let role = database.role("worker");
    let mut producer = database.session();
    producer.run(&TENANTS.replace("role_name", &role));
    let mut worker = database.session_as(&role);
    let tenants = [1, 2].map(Uuid::from_u128);
    for round in 1..=3 {
        let behind = tenants.map(|tenant| {
            let event = Event { tenant: Some(tenant), ..Event::default() };
            producer.enqueue(&event);
            producer.enqueue(&Event { available_at: Some(PAST), ..event })
        });
        for (tenant, event) in tenants.into_iter().zip(behind) {
            worker.run(&format!("SET app.tenant = '{tenant}'"));
            assert_eq!(ids(&worker.claim("w", 1)), [event], "round {round}");
            assert_eq!(worker.claim("w", 1).len(), 1, "round {round}");
            assert_eq!(worker.claim("w", 1), [], "round {round}");
        }
    }
}

#[test]
fn when_the_table_has_a_new_file_the_cursor_starts_over() {
    let database = Database::with_extension();
    let (mut worker, mut owner) = (database.session(), database.session());
    for statement in [
        "VACUUM FULL outbox_event",
        "CLUSTER outbox_event USING outbox_event_pkey",
        "TRUNCATE outbox_event",
        "ALTER TABLE outbox_event ALTER locked_by TYPE text USING locked_by || ''",
    ] {
        // A full claim and an empty one: the cursor is ahead.
        worker.enqueue_many(3);
        while !worker.claim("w", 3).is_empty() {}
        owner.run(statement);
        let behind = due_at(&mut owner, PAST);
        owner.enqueue_many(1);
        assert_eq!(ids(&worker.claim("w", 1)), [behind], "after {statement}");
    }
}

/// What an owner may do to the claim index under a warm session.
const INDEX_CHANGES: [&str; 8] = [
    "REINDEX TABLE outbox_event",
    "REINDEX TABLE CONCURRENTLY outbox_event",
    "DROP INDEX outbox_event_claim_idx",
    "CREATE INDEX outbox_event_claim_idx ON outbox_event (event_type, id)",
    "DROP INDEX outbox_event_claim_idx; CREATE INDEX outbox_event_claim_idx ON outbox_event USING hash (id)",
    "DROP INDEX outbox_event_claim_idx;
     CREATE INDEX outbox_event_claim_idx ON outbox_event (available_at, created_at, (lower(event_type)))",
    "DROP INDEX outbox_event_claim_idx;
     CREATE TABLE other (available_at timestamptz, created_at timestamptz, id uuid);
     CREATE INDEX outbox_event_claim_idx ON other (available_at, created_at, id)",
    "DROP INDEX outbox_event_claim_idx;
     CREATE INDEX outbox_event_claim_idx ON outbox_event (available_at, created_at, id)
         WHERE completed_at IS NULL AND dead_at IS NULL",
];

#[test]
fn whatever_becomes_of_the_claim_index_events_are_found() {
    // A crash would be everybody's on a shared server.
    let cluster = Cluster::start_new();
    let (mut worker, mut owner) = (cluster.session(), cluster.session());
    assert_eq!(worker.claim("w", 1), []);
    for change in INDEX_CHANGES {
        // REINDEX CONCURRENTLY refuses to be one of several statements of a message.
        change.split("; ").for_each(|statement| owner.run(statement));
        for queue in Queue::EITHER {
            let behind = [0; 2].map(|_| due_at(&mut owner, PAST));
            queue.brings(&mut worker, &behind);
        }
    }
}

#[test]
fn a_claim_index_that_goes_while_a_claim_waits_or_its_transaction_idles_is_not_missed() {
    let database = Database::with_extension();
    let (mut worker, mut owner) = (ahead(&database), database.session());
    // So that the claims below look behind themselves first.
    let a_sweep_is_due = "SELECT pg_sleep(0.25)";

    worker.run(a_sweep_is_due);
    worker.run("BEGIN; SELECT 1");
    owner.run("REINDEX INDEX CONCURRENTLY outbox_event_claim_idx");
    let behind = due_at(&mut owner, PAST);
    assert_eq!(ids(&worker.claim("w", 1)), [behind]);
    worker.run("COMMIT");

    worker.run(a_sweep_is_due);
    let behind = due_at(&mut owner, PAST);
    owner.run(
        "BEGIN; DROP INDEX outbox_event_claim_idx;
         CREATE INDEX outbox_event_claim_idx ON outbox_event (available_at, created_at, id)
             WHERE completed_at IS NULL AND dead_at IS NULL",
    );
    let call = HeldUp::start(&database, worker, |worker| worker.claim("w", 1));
    owner.run("COMMIT");
    assert_eq!(ids(&call.answer().1), [behind]);
}

#[test]
fn a_warm_session_outlives_the_extension_and_finds_the_events_of_the_next() {
    let database = Database::with_extension();
    let (mut worker, mut owner) = (ahead(&database), database.session());
    for queue in Queue::EITHER {
        let lost = due_at(&mut owner, PAST);
        owner.run("DROP EXTENSION outbox_ext");
        owner.run("CREATE EXTENSION outbox_ext");
        let behind = due_at(&mut owner, PAST);
        assert_ne!(behind, lost);
        assert_eq!(ids(&worker.claim("w", 1)), [behind], "the cursor starts over");
        let behind = due_at(&mut owner, PAST);
        queue.brings(&mut worker, &[behind]);
    }
}

#[test]
fn a_warm_session_finds_events_after_the_schema_was_renamed() {
    let database = Database::with_extension_in("before");
    let (mut worker, mut owner) = (database.session(), database.session());
    for session in [&mut worker, &mut owner] {
        session.run("SET search_path = before, after");
    }
    assert_eq!(worker.claim("w", 1), []);
    for (rename, queue) in
        [("before RENAME TO after", Queue::Idle), ("after RENAME TO before", Queue::NeverEmpty)]
    {
        owner.run(&format!("ALTER SCHEMA {rename}"));
        let behind = due_at(&mut owner, PAST);
        queue.brings(&mut worker, &[behind]);
    }
}

/// Columns that the walk reads, in other types: of the same length, of any length, of a fixed one.
const ALTERED: [(&str, &str, &str); 8] = [
    ("status", "text", "'pending'"),
    ("status", "jsonb", "to_jsonb('pending'::text)"),
    ("status", "bytea", "'pending'::text::bytea"),
    ("status", "name", "'pending'"),
    ("status", "bigint", "7"),
    ("locked_at", "timestamp", "now()"),
    ("locked_at", "text", "now()::text"),
    ("locked_at", "bigint", "7"),
];

#[test]
fn altered_columns_behind_the_cursor_of_a_warm_session_crash_nobody() {
    // A crash would be everybody's on a shared server.
    let cluster = Cluster::start_new();
    let (mut worker, mut owner) = (cluster.session(), cluster.session());
    for (column, kind, value) in ALTERED {
        owner.run(&format!(
            "DROP EXTENSION outbox_ext; CREATE EXTENSION outbox_ext;
             ALTER EXTENSION outbox_ext DROP VIEW outbox_stats; DROP VIEW outbox_stats;
             DROP TRIGGER zz_outbox_event_guard ON outbox_event;
             ALTER TABLE outbox_event ALTER {column} DROP DEFAULT, ALTER {column} TYPE {kind} USING {value},
                                      ALTER {column} SET DEFAULT {value}"
        ));
        // On an empty table the first claims may succeed, and then the cursor is ahead.
        let mut claim = || match worker.try_claim("w", 2, EXPIRED) {
            Ok(claimed) => claimed.len(),
            Err(error) => {
                let error = error.as_db_error().unwrap_or_else(|| panic!("{column} as {kind}: {error:?}"));
                assert_ne!(error.code().code(), "XX000", "{column} as {kind}: {error:?}");
                0
            }
        };
        claim();
        owner.run(&format!(
            "INSERT INTO outbox_event
                 (aggregate_type, aggregate_id, event_type, payload, payload_hash, available_at)
             SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64), '{PAST}'
             FROM generate_series(1, 5)"
        ));
        // Until a sweep has been due. A status that is a text serves as well.
        let serves = (column, kind) == ("status", "text");
        let (start, mut claimed) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(250) || serves && claimed < 5 {
            assert!(start.elapsed() < DEADLINE, "{column} as {kind}: passed over");
            claimed += claim();
        }
    }
}

#[test]
fn a_late_event_is_claimed_while_a_producer_and_a_worker_run() {
    let database = Database::with_extension();
    database.session().enqueue_many(2_000);
    let (ahead, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let worker = |session: &mut Client| {
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            let batch = session.claim("w", 50);
            ahead.store(true, Relaxed);
            session
                .execute("SELECT outbox_complete(id, 'w', 1) FROM unnest($1::uuid[]) AS id", &[&ids(&batch)])
                .expect("the worker holds the leases");
            if batch.iter().any(|event| event.payload == LATE) {
                return true;
            }
        }
        false
    };
    let came = crowd::each(&database, 3, |number, session| match number {
        0 => {
            let came = worker(session);
            over.store(true, Relaxed);
            came
        }
        1 => {
            while !over.load(Relaxed) {
                session.enqueue_many(100);
            }
            true
        }
        _ => {
            waiting::until("the cursor is ahead", || ahead.load(Relaxed));
            session.enqueue(&Event { available_at: Some(PAST), ..Event::carrying(LATE) });
            true
        }
    });
    assert!(came[0], "the late event was passed over");
}

const LATE: &str = "\"late\"";

/// Leases that have not expired, at the front of the queue: a sweep has to walk them all, in many slices.
fn leases(session: &mut Client, count: i32) {
    session
        .execute(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash,
                                       available_at, status, attempt_count, locked_at, locked_by)
             SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64),
                    '2020-01-01'::timestamptz + n * '1 second'::interval, 'processing', 1, now(), 'other'
             FROM generate_series(1, $1) AS n",
            &[&count],
        )
        .expect("the leases");
}

#[test]
fn an_event_behind_many_leases_is_found_by_a_sweep_in_slices() {
    for queue in Queue::EITHER {
        let database = Database::with_extension();
        let mut worker = database.session();
        leases(&mut worker, 30_000);
        assert_eq!(worker.claim("w", 1), []);
        // In their midst, and at their end.
        let events = ["2020-01-01 04:00:00Z", "2020-06-01 00:00:00Z"].map(|at| due_at(&mut worker, at));
        queue.brings(&mut worker, &events);
        assert_eq!(worker.count("processing"), 30_000, "no lease was taken");
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A worker that does all that can go wrong; how many events it completed.
struct Unruly<'a> {
    name: String,
    session: &'a mut Client,
    dice: Dice,
    prepared: Option<String>,
    completed: usize,
}

impl Unruly<'_> {
    fn live(&mut self, rounds: usize) {
        for round in 0..rounds {
            self.session.enqueue_many(5);
            if round % 5 == 0 {
                self.settle_prepared();
            }
            match self.dice.below(9) {
                0 => self.in_transaction("ROLLBACK", |unruly| drop(unruly.claim())),
                1 => self.in_transaction("ROLLBACK TO s; COMMIT", |unruly| drop(unruly.claim())),
                2 => self.in_transaction("COMMIT", |unruly| {
                    unruly.session.enqueue_many(3);
                    unruly.session.run("SELECT pg_sleep(0.08)");
                }),
                3 => self.prepare(|unruly| drop(unruly.claim())),
                4 => self.prepare(|unruly| unruly.session.enqueue_many(3)),
                // It forgets them: the leases expire.
                5 => drop(self.claim()),
                6 => drop(due_at(self.session, PAST)),
                _ => self.work(),
            }
        }
        self.settle_prepared();
    }

    fn claim(&mut self) -> Vec<Claimed> {
        let batch_size = 1 + self.dice.below(20) as i32;
        self.session.claim(&self.name, batch_size)
    }

    fn work(&mut self) {
        for event in self.claim() {
            self.session.complete(event.id, &self.name);
            self.completed += 1;
        }
    }

    fn in_transaction(&mut self, end: &str, what: impl FnOnce(&mut Self)) {
        self.session.run("BEGIN; SAVEPOINT s");
        what(self);
        self.session.run(end);
    }

    fn prepare(&mut self, what: impl FnOnce(&mut Self)) {
        self.settle_prepared();
        let gid = format!("{} {}", self.name, Uuid::new_v4());
        self.in_transaction(&format!("PREPARE TRANSACTION '{gid}'"), what);
        self.prepared = Some(gid);
    }

    fn settle_prepared(&mut self) {
        if let Some(gid) = self.prepared.take() {
            let end = if self.dice.below(2) == 0 { "COMMIT" } else { "ROLLBACK" };
            self.session.run(&format!("{end} PREPARED '{gid}'"));
        }
    }

    /// Claims, with batches that are full to the last, until everything is done.
    fn drain(&mut self) {
        let start = Instant::now();
        let unfinished = "SELECT count(*) FROM outbox_event WHERE status IN ('pending', 'processing')";
        while self.session.value::<i64>(unfinished, &[]) > 0 {
            assert!(
                start.elapsed() < DEADLINE,
                "{} events were passed over",
                self.session.value::<i64>(unfinished, &[])
            );
            for event in self.session.claim_within(&self.name, 7, EXPIRED) {
                self.session.complete(event.id, &self.name);
                self.completed += 1;
            }
        }
    }
}

#[test]
fn eight_unruly_workers_leave_nothing_behind() {
    let database = Database::with_extension();
    let quiet = Barrier::new(8);
    let completed = crowd::each(&database, 8, |number, session| {
        let name = format!("worker {number}");
        let dice = Dice(number as u64);
        let mut unruly = Unruly { name, session, dice, prepared: None, completed: 0 };
        unruly.live(40);
        quiet.wait();
        // One of them, with the cursor that it has.
        if number == 3 {
            unruly.drain();
        }
        unruly.completed
    });
    let mut session = database.session();
    let events: i64 = session.value("SELECT count(*) FROM outbox_event", &[]);
    assert_eq!(session.count("completed"), events);
    assert_eq!(completed.iter().sum::<usize>() as i64, events);
}
