//! Order under everything that goes wrong at once: producers that serialise on their aggregates, eight workers
//! that fail, stall, roll back, vanish and release, and an operator who replays the dead.
//!
//! A trigger writes down each change of an event's status that commits. Within an aggregate the lines stand in
//! the order of cause and effect: who sees a change commit writes behind it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use support::choice::Choice;
use support::sql::Parameters;
use support::{Client, Database, Sql, Uuid};

const AGGREGATES: usize = 200;
const PRODUCERS: usize = 3;
const TRANSACTIONS: usize = 180;
const WORKERS: usize = 8;

/// Short, so that stalls are taken over; what a slow machine makes of it is one more stall.
const LEASE: &str = "500 milliseconds";
const STALL: Duration = Duration::from_millis(700);

const SCENE: &str = "
    CREATE TABLE account (number integer PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(), last integer NOT NULL DEFAULT 0);
    CREATE TABLE story (line bigserial, event uuid, aggregate uuid, number integer,
                        before text, after text, attempt integer, worker text);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO story (event, aggregate, number, before, after, attempt, worker)
            VALUES (OLD.id, OLD.aggregate_id, OLD.payload::integer, OLD.status, 'completed', OLD.attempt_count, OLD.locked_by);
        ELSIF NEW.status <> OLD.status OR NEW.attempt_count <> OLD.attempt_count THEN
            INSERT INTO story (event, aggregate, number, before, after, attempt, worker)
            VALUES (NEW.id, NEW.aggregate_id, NEW.payload::integer, OLD.status, NEW.status, NEW.attempt_count, NEW.locked_by);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER tell AFTER UPDATE OR DELETE ON outbox_event FOR EACH ROW EXECUTE FUNCTION tell()";

#[test]
fn every_aggregates_events_are_delivered_one_after_the_other_whatever_goes_wrong() {
    let seed = seed();
    eprintln!("OUTBOX_TEST_SEED={seed}");
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(SCENE);
    session.run(&format!("INSERT INTO account (number) SELECT generate_series(1, {AGGREGATES})"));
    let stage = Stage {
        database: &database,
        producing: AtomicUsize::new(PRODUCERS),
        over: AtomicBool::new(false),
        delivered: Mutex::default(),
    };
    let replayed = thread::scope(|scope| {
        let stage = &stage;
        for number in 0..PRODUCERS {
            let choice = Choice(seed.wrapping_add(number as u64));
            scope.spawn(move || produce(stage, choice));
        }
        for number in 0..WORKERS {
            let choice = Choice(seed.wrapping_add(1_000 + number as u64));
            scope.spawn(move || Worker::new(stage, number, choice).work());
        }
        scope.spawn(move || operate(stage)).join().expect("the operator sees the end")
    });
    let lines = lines(&mut session);
    check_order(&lines, &replayed);
    check_ends(&mut session, &lines);
    check_deliveries(&lines, &stage.delivered.into_inner().expect("no panic"));
    check_variety(&lines);
}

fn seed() -> u64 {
    let given = std::env::var("OUTBOX_TEST_SEED").ok();
    given.map_or_else(
        || Uuid::new_v4().as_u64_pair().0,
        |seed| seed.parse().expect("OUTBOX_TEST_SEED is a number"),
    )
}

/// What all share.
struct Stage<'a> {
    database: &'a Database,
    producing: AtomicUsize,
    over: AtomicBool,
    /// What each worker was handed by claims that committed: event, attempt and worker.
    delivered: Mutex<Vec<(Uuid, i32, String)>>,
}

/// Enqueues the next events of some aggregates, each behind a lock on its business row.
fn produce(stage: &Stage, mut choice: Choice) {
    let mut session = stage.database.session();
    for _ in 0..TRANSACTIONS {
        let mut accounts: Vec<i32> =
            (0..1 + choice.below(6)).map(|_| choice.below(AGGREGATES) as i32 + 1).collect();
        accounts.sort_unstable();
        session.run("BEGIN");
        for account in accounts {
            session
                .execute("SELECT FROM account WHERE number = $1 FOR UPDATE", &[&account])
                .expect("the business row is locked");
            session
                .execute(
                    "WITH next AS (UPDATE account SET last = last + 1 WHERE number = $1 RETURNING id, last)
                     SELECT outbox_enqueue(NULL, 'account', id, $2::text, NULL, to_jsonb(last)) FROM next",
                    &[&account, &choice.of(&["even", "odd"])],
                )
                .expect("the event is enqueued");
        }
        if choice.one_in(10) {
            session.run("SELECT pg_sleep(0.06)");
        }
        session.run(if choice.one_in(8) { "ROLLBACK" } else { "COMMIT" });
    }
    stage.producing.fetch_sub(1, Relaxed);
}

/// Replays the dead until there is nothing left to do; what was replayed.
fn operate(stage: &Stage) -> HashSet<Uuid> {
    let mut session = stage.database.session();
    let mut replayed = HashSet::new();
    let start = Instant::now();
    loop {
        let produced = stage.producing.load(Relaxed) == 0;
        let dead: Vec<Uuid> = session.column("SELECT id FROM outbox_event WHERE dead_at IS NOT NULL", &[]);
        session.execute("SELECT outbox_replay($1)", &[&dead]).expect("the dead are replayed");
        replayed.extend(dead);
        let left: bool =
            session.value("SELECT EXISTS (SELECT FROM outbox_event WHERE completed_at IS NULL)", &[]);
        if produced && !left {
            stage.over.store(true, Relaxed);
            return replayed;
        }
        assert!(start.elapsed() < Duration::from_secs(100), "not all events are completed");
        thread::sleep(Duration::from_millis(20));
    }
}

/// One that was handed an event.
#[derive(Clone, Copy)]
struct Held {
    event: Uuid,
    attempt: i32,
}

struct Worker<'a> {
    stage: &'a Stage<'a>,
    name: String,
    choice: Choice,
    claims: Client,
    /// Where it settles, if it is another connection.
    settles: Option<Client>,
    batch_size: i32,
    filter: &'static str,
    deletes: bool,
    /// Settles in batches.
    batches: bool,
    /// What it is late with, since when.
    late: Vec<(Held, Instant)>,
}

impl<'a> Worker<'a> {
    fn new(stage: &'a Stage<'a>, number: usize, choice: Choice) -> Self {
        let mut worker = Self {
            stage,
            name: format!("worker {number}"),
            choice,
            claims: stage.database.session(),
            settles: [2, 5].contains(&number).then(|| stage.database.session()),
            batch_size: [10, 1, 20, 10, 10, 3, 50, 5][number],
            filter: ["NULL", "NULL", "NULL", "'{even}'", "'{odd}'", "NULL", "NULL", "'{odd,even}'"][number],
            deletes: number >= 5,
            batches: number.is_multiple_of(2),
            late: Vec::new(),
        };
        worker.configure();
        worker
    }

    fn configure(&mut self) {
        if self.deletes {
            self.settling().run("SET outbox.delete_completed = on");
        }
    }

    fn settling(&mut self) -> &mut Client {
        self.settles.as_mut().unwrap_or(&mut self.claims)
    }

    fn work(mut self) {
        while !self.stage.over.load(Relaxed) {
            let held = self.claim();
            for held in &held {
                self.stage.delivered.lock().expect("no panic").push((
                    held.event,
                    held.attempt,
                    self.name.clone(),
                ));
            }
            self.settle(held);
            self.settle_late();
        }
    }

    /// A claim that commits, or comes to nothing.
    fn claim(&mut self) -> Vec<Held> {
        let sql = format!(
            "SELECT id, attempt_count FROM outbox_claim_batch($1, $2, '{LEASE}', 8, {}, ordered => true)",
            self.filter
        );
        self.claims.run("BEGIN");
        let rows = match self.claims.query(&sql, &[&self.name, &self.batch_size]) {
            Ok(rows) => rows,
            Err(error) => {
                one_of(&error, &["40001", "40P01"]);
                self.claims.run("ROLLBACK");
                return Vec::new();
            }
        };
        match self.choice.below(40) {
            0 => {
                self.claims.run("ROLLBACK");
                return Vec::new();
            }
            1 => {
                self.vanish();
                return Vec::new();
            }
            _ => self.claims.run("COMMIT"),
        }
        rows.iter().map(|row| Held { event: row.get(0), attempt: row.get(1) }).collect()
    }

    /// Loses its connection, and makes a new one.
    fn vanish(&mut self) {
        let gone = self.claims.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]);
        assert!(gone.is_err(), "the connection is gone");
        self.claims = self.stage.database.session();
        self.configure();
    }

    fn settle(&mut self, held: Vec<Held>) {
        let mut done = Vec::new();
        for held in held {
            match self.choice.below(40) {
                0 | 1 => self.late.push((held, Instant::now())),
                2 => self.fail(held, "0", "NULL"),
                3 | 4 => self.fail(held, "NULL", "clock_timestamp()"),
                5 => self.fail(held, "NULL", "clock_timestamp() + '30 milliseconds'"),
                6 => self.release(held),
                _ => done.push(held),
            }
        }
        if self.choice.one_in(20) {
            self.settling().run("BEGIN");
            self.complete(&done);
            self.settling().run("ROLLBACK");
        }
        self.complete(&done);
    }

    /// All at once or one by one; lost leases are left alone, or refused.
    fn complete(&mut self, done: &[Held]) {
        let name = self.name.clone();
        if self.batches {
            let events: Vec<_> = done.iter().map(|held| held.event).collect();
            let attempts: Vec<_> = done.iter().map(|held| held.attempt).collect();
            self.settling()
                .execute("SELECT outbox_complete_batch($1, $2, $3)", &[&events, &name, &attempts])
                .expect("a batch leaves lost leases alone");
            return;
        }
        for held in done {
            let arguments: Parameters = &[&held.event, &name, &held.attempt];
            if let Err(error) = self.settling().execute("SELECT outbox_complete($1, $2, $3)", arguments) {
                // The last: an earlier one was refused in the same transaction.
                one_of(&error, &["55000", "P0002", "25P02"]);
            }
        }
    }

    fn fail(&mut self, held: Held, max_attempts: &str, next: &str) {
        let name = self.name.clone();
        let (event, attempt) = (vec![held.event], vec![held.attempt]);
        let sql = format!("SELECT outbox_fail_batch($1, $2, 'oops', {max_attempts}, {next}, $3)");
        self.settling().execute(&sql, &[&event, &name, &attempt]).expect("it fails, or is left alone");
    }

    fn release(&mut self, held: Held) {
        let name = self.name.clone();
        let (event, attempt) = (vec![held.event], vec![held.attempt]);
        self.settling()
            .execute("SELECT outbox_release_batch($1, $2, attempts => $3)", &[&event, &name, &attempt])
            .expect("it is released, or left alone");
    }

    /// Comes back to what it stalled on, which others may have by now.
    fn settle_late(&mut self) {
        let (ready, late) = self.late.drain(..).partition(|(_, since)| since.elapsed() >= STALL);
        self.late = late;
        let ready: Vec<(Held, Instant)> = ready;
        for (held, _) in ready {
            self.complete(&[held]);
        }
    }
}

fn one_of(error: &postgres::Error, states: &[&str]) {
    let state = error.code().map(|state| state.code()).unwrap_or_default();
    assert!(states.contains(&state), "{error:?}");
}

/// A change of an event's status.
struct Line {
    event: Uuid,
    aggregate: Uuid,
    /// The event's place in its aggregate, from 1 on.
    number: i32,
    before: String,
    after: String,
    attempt: i32,
    worker: Option<String>,
}

fn lines(session: &mut Client) -> Vec<Line> {
    let rows = session
        .query(
            "SELECT event, aggregate, number, before, after, attempt, worker FROM story ORDER BY line",
            &[],
        )
        .expect("the story");
    let line = |row: &postgres::Row| Line {
        event: row.get(0),
        aggregate: row.get(1),
        number: row.get(2),
        before: row.get(3),
        after: row.get(4),
        attempt: row.get(5),
        worker: row.get(6),
    };
    rows.iter().map(line).collect()
}

/// At any time one event of an aggregate is in flight, and all before it have ended, but for those that came
/// back from the dead.
fn check_order(lines: &[Line], replayed: &HashSet<Uuid>) {
    let mut in_flight: HashMap<Uuid, i32> = HashMap::new();
    let mut ended: HashSet<(Uuid, i32)> = HashSet::new();
    let back: HashSet<(Uuid, i32)> = lines
        .iter()
        .filter(|line| replayed.contains(&line.event))
        .map(|line| (line.aggregate, line.number))
        .collect();
    for line in lines {
        let Line { event, aggregate, number, after, .. } = line;
        if after == "processing" {
            let other = in_flight.insert(*aggregate, *number).filter(|other| other != number);
            assert_eq!(other, None, "{event}: {number} of {aggregate} beside another");
            for earlier in (1..*number).map(|earlier| (*aggregate, earlier)) {
                assert!(
                    ended.contains(&earlier) || back.contains(&earlier),
                    "{number} of {aggregate} before {}",
                    earlier.1
                );
            }
        } else if line.before == "processing" {
            assert_eq!(in_flight.remove(aggregate), Some(*number), "{event} was in flight");
        }
        if after == "completed" || after == "dead" {
            ended.insert((*aggregate, *number));
        } else {
            ended.remove(&(*aggregate, *number));
        }
    }
}

/// Every event that was enqueued is completed, once.
fn check_ends(session: &mut Client, lines: &[Line]) {
    let mut completed: HashMap<Uuid, Vec<i32>> = HashMap::new();
    for line in lines.iter().filter(|line| line.after == "completed") {
        completed.entry(line.aggregate).or_default().push(line.number);
    }
    for row in session.query("SELECT id, last FROM account", &[]).expect("the accounts") {
        let mut numbers = completed.remove(&row.get(0)).unwrap_or_default();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=row.get(1)).collect::<Vec<i32>>());
    }
    assert!(completed.is_empty());
}

/// Nothing was handed out but in a claim that committed, and to that worker alone.
fn check_deliveries(lines: &[Line], delivered: &[(Uuid, i32, String)]) {
    let claimed: HashSet<_> = lines
        .iter()
        .filter(|line| line.after == "processing")
        .map(|line| (line.event, line.attempt, line.worker.clone().expect("a lease has an owner")))
        .collect();
    let handed: HashSet<_> = delivered.iter().cloned().collect();
    assert_eq!(handed.len(), delivered.len(), "an attempt was handed out twice");
    assert_eq!(handed, claimed);
}

/// What was to go wrong went wrong.
fn check_variety(lines: &[Line]) {
    for (before, after) in [
        ("processing", "processing"),
        ("processing", "pending"),
        ("processing", "dead"),
        ("dead", "pending"),
        ("processing", "completed"),
    ] {
        let times = lines.iter().filter(|line| line.before == before && line.after == after).count();
        eprintln!("{before} to {after}: {times} times");
        assert!(times > 0, "{before} to {after} did not happen");
    }
}
