//! Deduplication between real sessions: one event for a key, whoever wins, loses, rolls back or deletes.

use support::outbox::ids;
use support::refusal::Refusal;
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid, crowd};

const KEY: &str = "k-1";

fn enqueue_key(session: &mut Client) -> Result<Uuid, postgres::Error> {
    session.try_enqueue(&Event::keyed(KEY))
}

/// A session whose transaction has enqueued the key, the event's id, and a session that waits for it.
fn race(database: &Database) -> (Client, Uuid, HeldUp<Result<Uuid, postgres::Error>>) {
    let mut winner = database.session();
    winner.run("BEGIN");
    let id = winner.enqueue(&Event::keyed(KEY));
    let loser = HeldUp::start(database, database.session(), enqueue_key);
    (winner, id, loser)
}

fn events(session: &mut Client) -> i64 {
    session.value("SELECT count(*) FROM outbox_event", &[])
}

#[test]
fn the_loser_of_a_race_gets_the_id_that_the_winner_committed() {
    let database = Database::with_extension();
    let (mut winner, id, loser) = race(&database);
    winner.run("COMMIT");
    assert_eq!(loser.answer().1.expect("the first event's id"), id);
    assert_eq!(events(&mut winner), 1);
}

#[test]
fn the_loser_of_a_race_inserts_when_the_winner_rolls_back() {
    let database = Database::with_extension();
    let (mut winner, id, loser) = race(&database);
    winner.run("ROLLBACK");
    let own = loser.answer().1.expect("an event of its own");
    assert_ne!(own, id);
    assert_eq!(winner.column::<Uuid>("SELECT id FROM outbox_event", &[]), [own]);
}

#[test]
fn the_loser_of_a_race_with_another_payload_is_refused_when_the_winner_commits() {
    let database = Database::with_extension();
    let mut winner = database.session();
    winner.run("BEGIN");
    winner.enqueue(&Event::keyed(KEY));
    let loser = HeldUp::start(&database, database.session(), |session| {
        session.try_enqueue(&Event { payload: "2", ..Event::keyed(KEY) })
    });
    winner.run("COMMIT");
    let refusal = Refusal::expect(loser.answer().1, "another payload");
    assert_eq!(refusal.sqlstate, "23505");
}

#[test]
fn a_race_is_won_once_by_many_sessions_and_many_keys() {
    const KEYS: usize = 150;
    let database = Database::with_extension();
    let answers = crowd::each(&database, 8, |number, session| {
        let mut answers = vec![Uuid::nil(); KEYS];
        for step in 0..KEYS {
            // Each starts elsewhere, so that every session wins some keys and loses others.
            let at = (step + number * KEYS / 8) % KEYS;
            answers[at] = session.enqueue(&Event::keyed(&format!("key {at}")));
        }
        answers
    });
    assert!(answers.iter().all(|of_one| *of_one == answers[0]));
    assert_eq!(events(&mut database.session()), KEYS as i64);
}

#[test]
fn events_of_no_tenant_are_one_tenant() {
    let database = Database::with_extension();
    let (mut winner, id, loser) = race(&database);
    winner.run("COMMIT");
    let (mut loser, answer) = loser.answer();
    assert_eq!(answer.expect("the first event's id"), id);
    assert_eq!(loser.enqueue(&Event::keyed(KEY)), id);
    let zero = Event { tenant: Some(Uuid::nil()), ..Event::keyed(KEY) };
    assert_eq!(Refusal::expect(loser.try_enqueue(&zero), "the all-zero tenant").sqlstate, "22023");
}

#[test]
fn another_tenant_or_event_type_is_another_event_and_does_not_wait() {
    let database = Database::with_extension();
    let mut first = database.session();
    first.run("BEGIN");
    let id = first.enqueue(&Event::keyed(KEY));
    let mut second = database.session();
    second.run("SET lock_timeout = '1s'");
    let others = [
        Event { tenant: Some(Uuid::from_u128(1)), ..Event::keyed(KEY) },
        Event { tenant: Some(Uuid::from_u128(2)), ..Event::keyed(KEY) },
        Event { event_type: "order.paid", ..Event::keyed(KEY) },
        Event::keyed("k-2"),
    ];
    let mut all: Vec<Uuid> = others.iter().map(|event| second.enqueue(event)).collect();
    all.push(id);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5);
}

#[test]
fn another_payload_or_aggregate_is_a_conflict_that_names_the_holder_and_no_content() {
    let database = Database::with_extension();
    let mut session = database.session();
    let secret = r#"{"secret": "s3cret"}"#;
    let id = session.enqueue(&Event { payload: secret, ..Event::keyed(KEY) });
    let conflicts = [
        Event::keyed(KEY),
        Event { aggregate: Uuid::from_u128(2), payload: secret, ..Event::keyed(KEY) },
        Event { aggregate_type: "invoice", payload: secret, ..Event::keyed(KEY) },
        Event { aggregate_type: "invoice", payload: r#"{"secret": "other"}"#, ..Event::keyed(KEY) },
    ];
    for event in &conflicts {
        let refusal = Refusal::expect(session.try_enqueue(event), "another event under one key");
        assert_eq!(refusal.sqlstate, "23505");
        assert!(refusal.explained().contains(&id.to_string()), "{refusal:?}");
        assert!(!refusal.mentions("secret"), "{refusal:?}");
    }
    assert_eq!(events(&mut session), 1);
}

#[test]
fn equal_payloads_written_differently_are_one_event() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event { payload: r#"{"a": 1, "b": [1e2, "é"]}"#, ..Event::keyed(KEY) });
    let same = Event { payload: r#"{"b":[100.0,"\u00e9"],"a":2,"a":1.0}"#, ..Event::keyed(KEY) };
    assert_eq!(session.enqueue(&same), id);
    let decomposed = Event { payload: "{\"a\": 1, \"b\": [100, \"e\u{301}\"]}", ..Event::keyed(KEY) };
    assert_eq!(Refusal::expect(session.try_enqueue(&decomposed), "NFD for NFC").sqlstate, "23505");
}

#[test]
fn a_key_is_kept_after_completion_and_after_death() {
    let database = Database::with_extension();
    let mut session = database.session();
    let (completed, dead) = (Event::keyed("completed"), Event::keyed("dead"));
    let (first, second) = (session.enqueue(&completed), session.enqueue(&dead));
    assert_eq!(ids(&session.claim("w", 2)), [first, second]);
    session.complete(first, "w");
    assert_eq!(session.fail(second, "w", 1), "dead");
    assert_eq!(session.enqueue(&completed), first);
    assert_eq!(session.enqueue(&dead), second);
    assert_eq!((session.count("completed"), session.count("dead")), (1, 1));
}

#[test]
fn a_key_is_free_once_its_event_is_deleted() {
    let database = Database::with_extension();
    let mut deleter = database.session();
    let id = deleter.enqueue(&Event::keyed(KEY));
    deleter.run("BEGIN; DELETE FROM outbox_event");
    let waiting = HeldUp::start(&database, database.session(), enqueue_key);
    deleter.run("COMMIT");
    let (session, answer) = waiting.answer();
    let fresh = answer.expect("a new event");
    assert_ne!(fresh, id);

    deleter.run("BEGIN; DELETE FROM outbox_event");
    let waiting = HeldUp::start(&database, session, enqueue_key);
    deleter.run("ROLLBACK");
    assert_eq!(waiting.answer().1.expect("the event that stayed"), fresh);
    assert_eq!(events(&mut deleter), 1);
}

#[test]
fn keys_taken_in_opposite_order_deadlock_once_and_lose_nothing() {
    let database = Database::with_extension();
    let (mut first, mut second) = (database.session(), database.session());
    first.run("BEGIN");
    first.enqueue(&Event::keyed("a"));
    second.run("BEGIN");
    second.enqueue(&Event::keyed("b"));
    let waiting = HeldUp::start(&database, first, |session| {
        end(session.try_enqueue(&Event::keyed("b")).err(), session)
    });
    let answer = second.try_enqueue(&Event::keyed("a")).err();
    let of_second = end(answer, &mut second);
    let (mut first, of_first) = waiting.answer();
    let errors: Vec<String> = [of_first, of_second].into_iter().flatten().collect();
    assert_eq!(errors, ["40P01"]);
    for session in [&mut first, &mut second] {
        session.enqueue(&Event::keyed("a"));
        session.enqueue(&Event::keyed("b"));
    }
    assert_eq!(events(&mut first), 2);
}

/// Ends a transaction as its last call demands; the SQLSTATE, if it was an error.
fn end(error: Option<postgres::Error>, session: &mut Client) -> Option<String> {
    session.run(if error.is_some() { "ROLLBACK" } else { "COMMIT" });
    error.map(|error| Refusal::expect::<()>(Err(error), "a deadlock").sqlstate)
}

#[test]
fn under_repeatable_read_and_serializable_the_loser_is_told_to_retry() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let mut winner = database.session();
        let mut loser = database.session();
        loser.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(events(&mut loser), 0); // takes the snapshot
        let id = winner.enqueue(&Event::keyed(KEY));
        assert_eq!(Refusal::expect(enqueue_key(&mut loser), level).sqlstate, "40001");
        loser.run("ROLLBACK");

        loser.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(enqueue_key(&mut loser).expect("the retry finds it"), id);
        loser.run("COMMIT");
    }
}

#[test]
fn a_rolled_back_savepoint_takes_its_event_and_its_key_along() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("BEGIN; SAVEPOINT s");
    let undone = session.enqueue(&Event::keyed(KEY));
    session.run("ROLLBACK TO s");
    let id = session.enqueue(&Event { payload: "2", ..Event::keyed(KEY) });
    session.run("SAVEPOINT s");
    assert_eq!(Refusal::expect(enqueue_key(&mut session), "a conflict").sqlstate, "23505");
    session.run("ROLLBACK TO s; RELEASE s");
    let other = session.enqueue(&Event::keyed("k-2"));
    session.run("COMMIT");
    assert_ne!(undone, id);
    assert_eq!(session.column::<Uuid>("SELECT id FROM outbox_event ORDER BY id", &[]), [id, other]);
}

/// A thousand conflicts, each caught, and what the backend's memory grew by from the hundredth to the last.
const CAUGHT_CONFLICTS: &str = "
    DO $$
    DECLARE
        caught integer := 0;
        memory bigint;
    BEGIN
        FOR n IN 1 .. 1000 LOOP
            BEGIN
                PERFORM outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', 'k-1', to_jsonb(n));
            EXCEPTION WHEN unique_violation THEN
                caught := caught + 1;
            END;
            IF n = 100 THEN
                SELECT sum(used_bytes) INTO memory FROM pg_backend_memory_contexts;
            END IF;
        END LOOP;
        PERFORM set_config('test.caught', caught::text, false);
        SELECT sum(used_bytes) - memory INTO memory FROM pg_backend_memory_contexts;
        PERFORM set_config('test.growth', memory::text, false);
    END
    $$";

#[test]
fn a_thousand_caught_conflicts_leave_the_session_healthy_and_its_memory_flat() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue(&Event { payload: r#""first""#, ..Event::keyed(KEY) });
    session.run("BEGIN");
    session.run(CAUGHT_CONFLICTS);
    let good = session.enqueue(&Event::keyed("k-2"));
    session.run("COMMIT");
    assert_eq!(session.value::<String>("SELECT current_setting('test.caught')", &[]), "1000");
    assert_eq!(session.status(good), "pending");
    let growth: i64 = session.value("SELECT current_setting('test.growth')::bigint", &[]);
    assert!(growth < 200_000, "the backend's memory grew by {growth} bytes over 900 conflicts");
}
