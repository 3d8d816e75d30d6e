//! Enqueueing in bulk beside other sessions, and the same as a loop of outbox_enqueue.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use support::outbox::ids;
use support::plan::{Recorder, buffers};
use support::refusal::Refusal;
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid, crowd};

/// An answer: the id, and whether it is an earlier event's.
type Answer = (Uuid, bool);

/// An element as `Event` has it by default, with a key if one is given.
fn element(key: Option<&str>) -> String {
    let key = key.map_or("null".to_owned(), |key| format!("\"{key}\""));
    format!(
        r#"{{"aggregate_type": "order", "aggregate_id": "{}", "event_type": "order.created",
             "deduplication_key": {key}, "payload": {{"total": 12.50}}}}"#,
        Uuid::from_u128(1)
    )
}

fn of_keys(keys: &[String]) -> String {
    let elements: Vec<_> = keys.iter().map(|key| element(Some(key))).collect();
    format!("[{}]", elements.join(","))
}

fn try_batch(session: &mut Client, events: &str) -> Result<Vec<Answer>, postgres::Error> {
    let rows = session
        .query("SELECT ordinal, id, deduplicated FROM outbox_enqueue_batch($1::text::jsonb)", &[&events])?;
    let answer = |(row, expected): (&postgres::Row, i32)| {
        assert_eq!(row.get::<_, i32>(0), expected);
        (row.get(1), row.get(2))
    };
    Ok(rows.iter().zip(1..).map(answer).collect())
}

fn batch(session: &mut Client, events: &str) -> Vec<Answer> {
    try_batch(session, events).unwrap_or_else(|error| panic!("{events:.200}: {error:?}"))
}

fn keys(names: &[&str]) -> String {
    of_keys(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

fn events(session: &mut Client) -> i64 {
    session.value("SELECT count(*) FROM outbox_event", &[])
}

/// Events made by the server, each with its number as its payload; with keys, if there is a prefix.
const MADE: &str = "
    (SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'order', 'aggregate_id', gen_random_uuid(),
         'event_type', 'order.created', 'deduplication_key', $1::text || n, 'payload', n) ORDER BY n)
     FROM generate_series(1, $2::integer) AS n)";

fn batch_made(session: &mut Client, prefix: Option<&str>, count: i32) -> Vec<Uuid> {
    session
        .column(&format!("SELECT id FROM outbox_enqueue_batch({MADE}) ORDER BY ordinal"), &[&prefix, &count])
}

#[test]
fn ten_thousand_events_of_one_call_drain_in_the_order_of_their_ordinals() {
    let database = Database::with_extension();
    let mut session = database.session();
    for prefix in [None, Some("key ")] {
        let enqueued = batch_made(&mut session, prefix, 10_000);
        assert_eq!(enqueued.len(), 10_000);
        assert!(enqueued.is_sorted());
        let mut drained = Vec::new();
        for _ in 0..20 {
            drained.extend(ids(&session.claim("w", 500)));
        }
        assert_eq!(drained, enqueued);
        let numbered: bool = session.value(
            "SELECT bool_and(payload = to_jsonb(n))
             FROM (SELECT payload, row_number() OVER (ORDER BY id) AS n FROM outbox_event) AS event",
            &[],
        );
        assert!(numbered);
        session.run("TRUNCATE outbox_event");
    }
}

#[test]
fn a_duplicate_in_the_middle_of_a_bulk_enqueue_gives_its_event_and_the_rest_is_stored() {
    let database = Database::with_extension();
    let mut session = database.session();
    let earlier = session.enqueue(&Event::keyed("key 3"));
    session.claim_one("w");
    session.complete(earlier, "w");
    let before = session.row(earlier);
    let answers = batch(&mut session, &keys(&["key 1", "key 2", "key 3", "key 4", "key 3"]));
    assert_eq!(answers[2], (earlier, true));
    assert_eq!(answers[4], (earlier, true));
    assert!([0, 1, 3].iter().all(|&index| !answers[index].1));
    assert_eq!(session.row(earlier), before);
    assert_eq!(events(&mut session), 4);
}

/// A session whose transaction has enqueued a key, its event's id, and a batch that waits for it.
fn race(database: &Database) -> (Client, Uuid, HeldUp<Result<Vec<Answer>, postgres::Error>>) {
    let mut winner = database.session();
    winner.run("BEGIN");
    let id = winner.enqueue(&Event::keyed("k2"));
    let loser = HeldUp::start(database, database.session(), |session| {
        try_batch(session, &keys(&["k3", "k2", "k1", "k2"]))
    });
    (winner, id, loser)
}

#[test]
fn a_batch_waits_for_a_key_that_another_transaction_has_and_gets_its_event_when_that_commits() {
    let database = Database::with_extension();
    let (mut winner, id, loser) = race(&database);
    winner.run("COMMIT");
    let answers = loser.answer().1.expect("the first event's id among others");
    assert_eq!((answers[1], answers[3]), ((id, true), (id, true)));
    assert!(!answers[0].1 && !answers[2].1);
    assert_eq!(events(&mut winner), 3);
}

#[test]
fn a_batch_waits_for_a_key_that_another_transaction_has_and_takes_it_when_that_rolls_back() {
    let database = Database::with_extension();
    let (mut winner, id, loser) = race(&database);
    winner.run("ROLLBACK");
    let answers = loser.answer().1.expect("events of its own");
    assert_ne!(answers[1].0, id);
    assert_eq!(answers[3], (answers[1].0, true));
    assert!(answers[..3].iter().all(|(_, deduplicated)| !deduplicated));
    assert!(answers[0].0 < answers[1].0 && answers[1].0 < answers[2].0);
    assert_eq!(events(&mut winner), 3);
}

#[test]
fn a_batch_is_refused_as_a_whole_when_the_winner_of_a_race_commits_another_payload() {
    let database = Database::with_extension();
    let mut winner = database.session();
    winner.run("BEGIN");
    let id = winner.enqueue(&Event { payload: "2", ..Event::keyed("k2") });
    let loser =
        HeldUp::start(&database, database.session(), |session| try_batch(session, &keys(&["k3", "k2"])));
    winner.run("COMMIT");
    let refusal = Refusal::expect(loser.answer().1, "another payload");
    assert_eq!(refusal.sqlstate, "23505");
    assert_eq!(refusal.explained(), format!("The key of element 2 is held by event {id}."));
    assert_eq!(events(&mut winner), 1);
}

#[test]
fn a_batch_waits_for_a_deleter_and_takes_the_key_that_it_sets_free() {
    let database = Database::with_extension();
    let mut deleter = database.session();
    let id = deleter.enqueue(&Event::keyed("k2"));
    deleter.run("BEGIN; DELETE FROM outbox_event");
    let waiting =
        HeldUp::start(&database, database.session(), |session| try_batch(session, &keys(&["k1", "k2"])));
    deleter.run("COMMIT");
    let answers = waiting.answer().1.expect("two new events");
    assert!(answers.iter().all(|&(new, deduplicated)| new != id && !deduplicated));
    assert_eq!(events(&mut deleter), 2);
}

#[test]
fn batches_with_the_same_keys_in_any_order_never_deadlock_and_agree() {
    const KEYS: usize = 200;
    const ROUNDS: usize = 15;
    let database = Database::with_extension();
    let answers = crowd::each(&database, 6, |number, session| {
        (0..ROUNDS)
            .map(|round| {
                // Each session has its own order: forward, backward, and steps of several widths.
                let step = [1, KEYS - 1, 3, 7, KEYS - 9, 11][number];
                let order: Vec<usize> = (0..KEYS).map(|n| n * step % KEYS).collect();
                let names: Vec<String> = order.iter().map(|at| format!("{round} {at}")).collect();
                let mut by_key = vec![Uuid::nil(); KEYS];
                for (at, (id, _)) in order.iter().zip(batch(session, &of_keys(&names))) {
                    by_key[*at] = id;
                }
                by_key
            })
            .collect::<Vec<_>>()
    });
    assert!(answers.iter().all(|of_one| *of_one == answers[0]));
    let distinct: HashSet<Uuid> = answers[0].concat().into_iter().collect();
    assert_eq!(distinct.len(), KEYS * ROUNDS);
    assert_eq!(events(&mut database.session()), (KEYS * ROUNDS) as i64);
}

#[test]
fn under_repeatable_read_and_serializable_a_batch_whose_key_was_taken_since_is_told_to_retry() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let (mut winner, mut loser) = (database.session(), database.session());
        loser.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(events(&mut loser), 0); // takes the snapshot
        let id = winner.enqueue(&Event::keyed("k2"));
        let refusal = Refusal::expect(try_batch(&mut loser, &keys(&["k1", "k2"])), level);
        assert_eq!(refusal.sqlstate, "40001");
        loser.run("ROLLBACK");
        loser.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        assert_eq!(batch(&mut loser, &keys(&["k1", "k2"]))[1], (id, true));
        // Its own events it sees, as any later statement does.
        assert!(batch(&mut loser, &keys(&["k2", "k1"])).iter().all(|(_, deduplicated)| *deduplicated));
        loser.run("COMMIT");
    }
}

#[test]
fn a_huge_batch_can_be_cancelled_and_leaves_nothing() {
    let database = Database::with_extension();
    let mut session = database.session();
    session
        .execute(
            &format!("CREATE TABLE sent AS SELECT {MADE} AS list")
                .replace("$1::text", "'k'")
                .replace("$2::integer", "300000"),
            &[],
        )
        .expect("a long list");
    session.run("SET statement_timeout = '150ms'");
    let refusal = session.refused("SELECT count(*) FROM sent, outbox_enqueue_batch(list)", &[]);
    assert_eq!(refusal.sqlstate, "57014", "{refusal:?}");
    session.run("RESET statement_timeout");
    assert_eq!(events(&mut session), 0);
    assert_eq!(batch_made(&mut session, Some("k"), 10).len(), 10);
}

#[test]
fn a_rolled_back_savepoint_takes_the_batch_along() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("BEGIN; SAVEPOINT s");
    let undone = batch(&mut session, &keys(&["a", "b"]));
    session.run("ROLLBACK TO s");
    let kept = batch(&mut session, &keys(&["b", "c"]));
    session.run("COMMIT");
    assert!(kept.iter().all(|(id, deduplicated)| !deduplicated && !undone.contains(&(*id, false))));
    assert_eq!(events(&mut session), 2);
}

/// The keys of a hundred events that are there, for each kind of tenant, among a hundred thousand.
fn fill(session: &mut Client) {
    session.run(
        "INSERT INTO outbox_event
             (tenant_id, aggregate_type, aggregate_id, event_type, deduplication_key, payload)
         SELECT CASE n % 2 WHEN 0 THEN '00000000-0000-0000-0000-000000000003'::uuid END, 'order',
                '00000000-0000-0000-0000-000000000001', 'order.created', 'key ' || n, '1'
         FROM generate_series(1, 100000) AS n",
    );
}

const KNOWN: &str = "
    SELECT * FROM outbox_enqueue_batch((
        SELECT jsonb_agg(jsonb_build_object('tenant_id', tenant_id, 'aggregate_type', aggregate_type,
            'aggregate_id', aggregate_id, 'event_type', event_type, 'deduplication_key', deduplication_key,
            'payload', payload))
        FROM known))";

const KNOW: &str = "
    CREATE TEMP TABLE known AS SELECT * FROM outbox_event
    WHERE deduplication_key IN (SELECT 'key ' || n * 331 FROM generate_series(1, 200) AS n);
    ANALYZE known";

#[test]
fn keys_that_were_taken_are_found_by_a_seek_each_also_with_plans_made_on_an_empty_table() {
    for settings in [
        "",
        "SET enable_indexscan = off; SET enable_nestloop = off",
        "SET plan_cache_mode = force_custom_plan",
    ] {
        let database = Database::with_extension();
        let mut session = database.session();
        session.run("VACUUM ANALYZE outbox_event");
        let mut recorder = Recorder::start(&database);
        recorder.session.run(settings);
        recorder.session.run("BEGIN");
        for tenant in ["null", "\"00000000-0000-0000-0000-000000000003\""] {
            let one = element(Some("warm")).replacen('{', &format!("{{\"tenant_id\": {tenant}, "), 1);
            for _ in 0..2 {
                batch(&mut recorder.session, &format!("[{one}]"));
            }
        }
        recorder.session.run("ROLLBACK");
        fill(&mut session);
        recorder.session.run(KNOW);
        let (answers, plans) =
            recorder.plans(|session| session.query(KNOWN, &[]).expect("events that are there"));
        assert_eq!(answers.len(), 200);
        assert!(answers.iter().all(|row| row.get::<_, bool>(2)));
        let finds: Vec<_> = plans.iter().filter(|plan| plan.query.contains("WITH ORDINALITY")).collect();
        assert_eq!(finds.len(), 2);
        for plan in &finds {
            assert!(plan.seeks(), "{:?}", plan.kinds());
            assert!(plan.kinds().contains(&"Nested Loop"), "{:?}", plan.kinds());
        }
        let (touched, rows) = buffers(&mut recorder.session, KNOWN);
        assert_eq!(rows, 200);
        // Of each key, the insert reads the index down to it, and the look-up once more with its row.
        assert!(touched <= 12 * rows, "{touched} buffers for {rows} keys, {settings}");
    }
}

/// Elements as JSON text, few enough that keys meet, and now and then one with a fault.
fn random_element() -> impl Strategy<Value = String> {
    let key = select(vec!["null", "\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"e\"", "\"f\"", "null", "null"]);
    let tenant = select(vec![
        "null",
        "null",
        "\"7e000000-0000-4000-8000-000000000001\"",
        "\"7e000000-0000-4000-8000-000000000002\"",
    ]);
    let event_type = select(vec!["\"paid\"", "\"sent\""]);
    let aggregate = prop_oneof![12 => Just(1), 1 => Just(2)];
    let payload = prop_oneof![
        8 => select(vec!["{\"a\": [1, 2]}", "{\"a\":[1.0,2e0]}"]),
        1 => select(vec!["null", "1", "1e400", "\"text\"", "[]", "{\"a\": {\"b\": null}}"]),
    ];
    let available_at = select(vec!["null", "null", "\"2031-02-03 04:05:06.7+02\"", "\"2020-01-01 00:00Z\""]);
    let headers = select(vec!["null", "null", "{}", "{\"traceparent\": \"00\"}"]);
    let fault = prop_oneof![
        40 => Just(""),
        1 => select(vec![
            ", \"event_type\": \"\"",
            ", \"event_type\": null",
            ", \"headers\": []",
            ", \"available_at\": \"infinity\"",
            ", \"tenant_id\": \"00000000-0000-0000-0000-000000000000\"",
            ", \"aggregate_id\": null",
            ", \"deduplication_key\": \"\"",
        ]),
    ];
    (key, tenant, event_type, aggregate, payload, available_at, headers, fault).prop_map(
        |(key, tenant, event_type, aggregate, payload, available_at, headers, fault)| {
            format!(
                r#"{{"deduplication_key": {key}, "tenant_id": {tenant}, "event_type": {event_type},
                     "aggregate_type": "order", "aggregate_id": "{}", "payload": {payload},
                     "available_at": {available_at}, "headers": {headers}{fault}}}"#,
                Uuid::from_u128(aggregate)
            )
        },
    )
}

const SINGLE: &str = "
    SELECT outbox_enqueue((e ->> 'tenant_id')::uuid, e ->> 'aggregate_type', (e ->> 'aggregate_id')::uuid,
        e ->> 'event_type', e ->> 'deduplication_key', e -> 'payload', (e ->> 'available_at')::timestamptz,
        nullif(e -> 'headers', 'null'))
    FROM (SELECT $1::text::jsonb) AS q (e)";

/// What can be told of an outbox but ids and clocks, in the order of the ids.
fn rows(session: &mut Client) -> Vec<String> {
    session.column(
        "SELECT (to_jsonb(event) - '{id,created_at,updated_at,available_at}'::text[])::text
                || CASE WHEN available_at = created_at THEN '' ELSE available_at::text END
         FROM outbox_event AS event ORDER BY id",
        &[],
    )
}

/// What each element's event is among all that there are, and whether it is an earlier one's.
fn places(session: &mut Client, answers: &[Answer]) -> Vec<(usize, bool)> {
    let all: Vec<Uuid> = session.column("SELECT id FROM outbox_event ORDER BY id", &[]);
    let place = |id| all.iter().position(|other| other == id).expect("an event that is there");
    answers.iter().map(|(id, deduplicated)| (place(id), *deduplicated)).collect()
}

/// One call for each element; the SQLSTATEs of those that were refused, and the answers of the others.
fn in_a_loop(session: &mut Client, elements: &[String]) -> (HashSet<String>, Vec<Answer>) {
    let (mut refused, mut answers) = (HashSet::new(), Vec::new());
    let mut known: HashSet<Uuid> = session.column("SELECT id FROM outbox_event", &[]).into_iter().collect();
    for element in elements {
        session.run("SAVEPOINT one");
        match session.query_one(SINGLE, &[element]) {
            Ok(row) => {
                let id = row.get(0);
                answers.push((id, !known.insert(id)));
            }
            Err(error) => {
                refused.insert(Refusal::expect::<()>(Err(error), "a fault").sqlstate);
                session.run("ROLLBACK TO one");
            }
        }
    }
    (refused, answers)
}

#[test]
fn a_batch_does_what_a_loop_of_single_calls_does() {
    let database = Database::with_extension();
    let session = RefCell::new(database.session());
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let arrays = (vec(random_element(), 0..4), vec(random_element(), 0..14));
    let run = TestRunner::new(config).run(&arrays, |(before, elements)| {
        let session = &mut *session.borrow_mut();
        session.run("BEGIN");
        in_a_loop(session, &before);
        let untouched = rows(session);
        session.run("SAVEPOINT before");
        let (errors, answers) = in_a_loop(session, &elements);
        let expected = (rows(session), places(session, &answers));
        session.run("ROLLBACK TO before");
        let array = format!("[{}]", elements.join(","));
        match try_batch(session, &array) {
            Ok(answers) => {
                assert!(errors.is_empty(), "a loop is refused with {errors:?}: {array}");
                assert_eq!((rows(session), places(session, &answers)), expected, "{array}");
                accepted.set(accepted.get() + 1);
            }
            Err(error) => {
                let refusal = Refusal::expect::<()>(Err(error), "a fault");
                assert!(errors.contains(&refusal.sqlstate), "{refusal:?}, not {errors:?}: {array}");
                session.run("ROLLBACK TO before");
                assert_eq!(rows(session), untouched);
                refused.set(refused.get() + 1);
            }
        }
        session.run("ROLLBACK");
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    // The arrays must try both.
    assert!(accepted.get() > 100 && refused.get() > 50, "{} and {}", accepted.get(), refused.get());
}
