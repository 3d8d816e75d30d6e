//! Leases: they expire and are taken over, they fence late workers off, and they keep the clock.

use std::collections::HashSet;
use support::outbox::{EXPIRED, ids};
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// A session, and an event that worker "first" holds at attempt 1.
fn leased(database: &Database) -> (Client, Uuid) {
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    assert_eq!(ids(&session.claim("first", 10)), [id]);
    (session, id)
}

#[test]
fn an_expired_lease_is_taken_over_and_the_late_worker_refused() {
    let database = Database::with_extension();
    let (mut session, id) = leased(&database);
    let mut second = database.session();
    assert_eq!(second.claim("second", 10), []);
    let taken = second.claim_within("second", 10, EXPIRED);
    assert_eq!((taken[0].id, taken[0].attempt), (id, 2));

    let before = session.row(id);
    let late = session.refused_complete(id, "first", None);
    assert_eq!(late.sqlstate, "55000");
    assert!(late.explained().contains("second"), "{late:?}");
    assert_eq!(session.refused("SELECT outbox_fail($1, 'first', 'late')", &[&id]).sqlstate, "55000");
    assert_eq!(session.row(id), before);

    second.complete(id, "second");
    assert_eq!(session.status(id), "completed");
}

#[test]
fn a_worker_with_a_stable_name_is_fenced_by_its_attempt() {
    let database = Database::with_extension();
    let (mut session, id) = leased(&database);
    assert_eq!(session.claim_within("first", 10, EXPIRED)[0].attempt, 2);
    let before = session.row(id);
    let late = session.refused_complete(id, "first", Some(1));
    assert_eq!(late.sqlstate, "55000");
    assert!(late.explained().contains("attempt 2"), "{late:?}");
    let failed = session.refused("SELECT outbox_fail($1, 'first', 'late', attempt => 1)", &[&id]);
    assert_eq!(failed.sqlstate, "55000");
    assert_eq!(session.row(id), before);
    session.try_complete(id, "first", Some(2)).expect("the attempt that holds the lease");
}

#[test]
fn what_is_found_instead_of_a_lease_can_be_told_apart() {
    let database = Database::with_extension();
    let (mut session, id) = leased(&database);
    let mut details = HashSet::new();
    let mut found = |session: &mut Client, id, worker| {
        let refusal = session.refused_complete(id, worker, None);
        assert_eq!(refusal.sqlstate, "55000");
        assert!(details.insert(refusal.explained().to_owned()), "told before: {refusal:?}");
    };
    found(&mut session, id, "another worker");
    session.complete(id, "first");
    found(&mut session, id, "first");

    let never_claimed = session.enqueue(&Event::default());
    found(&mut session, never_claimed, "first");
    session.claim("first", 1);
    assert_eq!(session.fail(never_claimed, "first", 5), "pending");
    found(&mut session, never_claimed, "first");
    session.claim("first", 1);
    assert_eq!(session.fail(never_claimed, "first", 1), "dead");
    found(&mut session, never_claimed, "first");

    let unknown = session.refused_complete(Uuid::from_u128(5), "first", None);
    assert_eq!(unknown.sqlstate, "P0002");
    unknown.explained();
}

#[test]
fn a_settlement_waits_for_the_takeover_that_is_under_way_and_is_refused() {
    use support::refusal::Refusal;
    use support::waiting::HeldUp;
    let database = Database::with_extension();
    let (session, id) = leased(&database);
    let mut second = database.session();
    second.run("BEGIN");
    assert_eq!(second.claim_within("second", 1, EXPIRED)[0].attempt, 2);
    let late = HeldUp::start(&database, session, move |session| session.try_complete(id, "first", Some(1)));
    second.run("COMMIT");
    assert_eq!(Refusal::expect(late.answer().1, "a late completion").sqlstate, "55000");
    second.complete(id, "second");
}

#[test]
fn a_lease_taken_late_in_a_long_transaction_is_fresh() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue(&Event::default());
    session.run("BEGIN; SELECT pg_sleep(1.1)");
    session.claim_within("first", 1, "1 second");
    // With now() the lease would be as old as the transaction, which is longer than it lasts.
    let age_at_birth: f64 =
        session.value("SELECT extract(epoch FROM locked_at - now())::float8 FROM outbox_event", &[]);
    session.run("COMMIT");
    assert!(age_at_birth > 1.0, "the lease started {age_at_birth} s after the transaction");
}

#[test]
fn an_event_is_created_when_it_is_enqueued_and_not_when_its_transaction_began() {
    let database = Database::with_extension();
    let (mut slow, mut quick) = (database.session(), database.session());
    slow.run("BEGIN; SELECT now()");
    let first = quick.enqueue(&Event::default());
    let second = slow.enqueue(&Event::default());
    slow.run("COMMIT");
    let third = quick.enqueue(&Event::default());
    let order: Vec<Uuid> = quick.column("SELECT id FROM outbox_event ORDER BY created_at, id", &[]);
    assert_eq!(order, [first, second, third]);
    assert_eq!(ids(&quick.claim("w", 10)), order);
}

#[test]
fn events_that_always_hang_do_not_starve_fresh_ones() {
    let database = Database::with_extension();
    let mut session = database.session();
    let yesterday: String = session.value("SELECT (now() - '1 day'::interval)::text", &[]);
    for _ in 0..5 {
        session.enqueue(&Event { available_at: Some(&yesterday), ..Event::default() });
    }
    session.claim("hangs", 5);
    let fresh: HashSet<Uuid> = (0..5).map(|_| session.enqueue(&Event::default())).collect();
    // The hanging ones once more, at the latest then the fresh ones.
    session.claim_within("hangs", 5, EXPIRED);
    let claimed = session.claim_within("w", 5, EXPIRED);
    assert_eq!(ids(&claimed).into_iter().collect::<HashSet<_>>(), fresh);
}

#[test]
fn reclaimed_events_come_in_the_order_they_were_found_in() {
    let database = Database::with_extension();
    let mut session = database.session();
    let first = session.enqueue(&Event { available_at: Some("2020-01-01 00:00Z"), ..Event::default() });
    let second = session.enqueue(&Event { available_at: Some("2020-01-02 00:00Z"), ..Event::default() });
    let third = session.enqueue(&Event::default());
    assert_eq!(session.claim_one("first").id, first);
    session.claim_one("second");
    // A reclaim moves its event to the back, but for the calls that follow.
    assert_eq!(ids(&session.claim_within("w", 10, EXPIRED)), [first, second, third]);
    assert_eq!(ids(&session.claim_within("w", 10, EXPIRED)), [third, first, second]);
}

fn claim_limited(session: &mut Client, batch_size: i32, max_attempts: i32) -> Vec<Uuid> {
    session.column(
        "SELECT id FROM outbox_claim_batch('w', $1, '1 microsecond', max_attempts => $2)",
        &[&batch_size, &max_attempts],
    )
}

#[test]
fn an_event_that_kills_its_worker_ends_in_dead() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    for attempt in 1..=3 {
        assert_eq!(claim_limited(&mut session, 10, 3), [id]);
        assert_eq!(session.attempts(id), attempt);
    }
    assert!(claim_limited(&mut session, 10, 3).is_empty());
    let buried: bool = session.value(
        "SELECT status = 'dead' AND last_error_code = 'lease_expired' AND dead_at IS NOT NULL
                AND locked_by IS NULL AND locked_at IS NULL AND attempt_count = 3
         FROM outbox_event",
        &[],
    );
    assert!(buried, "{}", session.row(id));
    assert_eq!(session.refused_complete(id, "w", None).sqlstate, "55000");
}

#[test]
fn the_setting_limits_the_attempts_of_a_claim_that_does_not_say() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    session.run("SET outbox.max_attempts = 1");
    assert_eq!(ids(&session.claim_within("w", 1, EXPIRED)), [id]);
    assert_eq!(session.claim_within("w", 1, EXPIRED), []);
    assert_eq!(session.status(id), "dead");
}

#[test]
fn a_fresh_event_behind_more_than_a_batch_of_spent_ones_comes_with_the_same_call() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(37);
    assert_eq!(session.claim("crashes", 37).len(), 37);
    let fresh = session.enqueue(&Event::default());
    assert_eq!(claim_limited(&mut session, 5, 1), [fresh]);
    assert_eq!(session.count("dead"), 37);
}

#[test]
fn forgiven_attempts_do_not_count_toward_the_limit() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    for _ in 0..3 {
        session.claim_within("w", 1, EXPIRED);
    }
    assert_eq!(session.fail(id, "w", 3), "dead");
    // By hand: brought back with a fresh budget, its attempts going on from where they were.
    session.run("UPDATE outbox_event SET status = 'pending'");
    for attempt in 4..=6 {
        assert_eq!(claim_limited(&mut session, 1, 3), [id]);
        assert_eq!(session.attempts(id), attempt);
    }
    assert_eq!(session.fail(id, "w", 3), "dead");
}

#[test]
fn a_failure_puts_the_retry_off_by_a_jittered_backoff() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("SET outbox.backoff_base = '1h'; SET outbox.backoff_max = '1h'");
    session.enqueue_many(40);
    for event in session.claim("w", 40) {
        session
            .execute("SELECT outbox_fail($1, 'w', 'down')", &[&event.id])
            .expect("the worker holds the lease");
    }
    let (spread, beyond): (i64, i64) = {
        let row = session
            .query_one(
                "SELECT count(DISTINCT date_trunc('second', available_at)),
                        count(*) FILTER (WHERE available_at NOT BETWEEN updated_at AND updated_at + '1 hour')
                 FROM outbox_event",
                &[],
            )
            .expect("the events");
        (row.get(0), row.get(1))
    };
    assert_eq!(beyond, 0);
    assert!(spread > 20, "40 failures are due again at only {spread} different moments");
    assert!(session.claim("w", 40).len() < 20, "they must not come back together and at once");
}

#[test]
fn a_claim_that_waited_for_the_table_has_a_lease_from_after_the_wait() {
    let database = Database::with_extension();
    let (mut blocker, session) = (database.session(), database.session());
    blocker.enqueue(&Event::default());
    blocker.run("BEGIN; LOCK TABLE outbox_event IN SHARE MODE");
    let held_up = HeldUp::start(&database, session, |session| session.claim("w", 10).len());
    let waited_until: String = blocker.value("SELECT clock_timestamp()::text", &[]);
    blocker.run("COMMIT");
    let (mut session, claimed) = held_up.answer();
    assert_eq!(claimed, 1);
    let fresh = "SELECT locked_at >= $1::text::timestamptz FROM outbox_event";
    assert!(session.value::<bool>(fresh, &[&waited_until]));
}
