//! Ordered claims among several sessions: what comes late, comes back, is given up or is changed by hand is found
//! within the bound of docs/ordering.md, and never beside another event of its aggregate.

use std::time::{Duration, Instant};
use support::outbox::{EXPIRED, ids};
use support::refusal::Refusal;
use support::waiting::HeldUp;
use support::{Client, Database, Event, Outbox, Sql, Uuid, crowd};

/// Generous, since it is only used up when a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

const NONE: [Uuid; 0] = [];

fn in_order(session: &mut Client) -> Vec<Uuid> {
    ids(&session.claim_in_order("w", 10))
}

/// Claims until something comes.
fn waited_for(session: &mut Client) -> Vec<Uuid> {
    let start = Instant::now();
    loop {
        let found = in_order(session);
        if !found.is_empty() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "nothing is found");
    }
}

/// Polls for longer than what is passed over may be: nothing comes.
fn nothing_comes(session: &mut Client) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(250) {
        assert_eq!(in_order(session), NONE);
    }
}

/// A worker whose cursor is ahead of all that was enqueued so far.
fn ahead(database: &Database) -> Client {
    let mut worker = database.session();
    worker.run("SELECT pg_sleep(0.1)");
    assert_eq!(in_order(&mut worker), NONE);
    worker
}

/// Events of one aggregate.
fn some(session: &mut Client, events: usize) -> Vec<Uuid> {
    (0..events).map(|_| session.enqueue(&Event::default())).collect()
}

/// Two events of one aggregate, of which the first is dead, and a session that knows of it.
fn dead_and_pending(database: &Database) -> (Client, Uuid, Uuid) {
    let mut session = database.session();
    let events = some(&mut session, 2);
    assert_eq!(in_order(&mut session), events[..1]);
    assert_eq!(session.fail(events[0], "w", 0), "dead");
    (session, events[0], events[1])
}

fn replay(session: &mut Client, event: Uuid) {
    assert_eq!(session.value::<i64>("SELECT outbox_replay(ARRAY[$1]::uuid[])", &[&event]), 1);
}

/// What has become of the later event when the earlier one commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Pending,
    InFlight,
    Completed,
}

#[test]
fn an_earlier_event_that_commits_late_is_found_and_never_runs_beside_a_later_one() {
    for later in [Later::Pending, Later::InFlight, Later::Completed] {
        let database = Database::with_extension();
        let mut producer = database.session();
        producer.run("BEGIN");
        let first = producer.enqueue(&Event::default());
        let mut worker = ahead(&database);
        let [second, third] = [0; 2].map(|_| worker.enqueue(&Event::default()));
        if later != Later::Pending {
            assert_eq!(in_order(&mut worker), [second]);
        }
        if later == Later::Completed {
            worker.complete(second, "w");
        }
        producer.run("COMMIT");
        let expected = match later {
            Later::Pending => vec![first, second, third],
            Later::InFlight => {
                nothing_comes(&mut worker);
                nothing_comes(&mut ahead(&database));
                worker.complete(second, "w");
                vec![first, third]
            }
            Later::Completed => vec![first, third],
        };
        for next in &expected {
            assert_eq!(waited_for(&mut worker), [*next], "{later:?}");
            worker.complete(*next, "w");
        }
        assert_eq!(worker.count("completed"), 3);
    }
}

#[test]
fn an_earlier_event_that_is_replayed_waits_for_the_later_one_in_flight_and_then_comes_first() {
    let database = Database::with_extension();
    let (mut session, first, second) = dead_and_pending(&database);
    let third = session.enqueue(&Event::default());
    let mut other = database.session();
    assert_eq!(in_order(&mut session), [second]);
    replay(&mut other, first);
    nothing_comes(&mut other);
    session.complete(second, "w");
    for next in [first, third] {
        assert_eq!(waited_for(&mut other), [next]);
        other.complete(next, "w");
    }
}

#[test]
fn a_claim_of_a_replayed_event_waits_for_an_open_claim_of_a_later_one_and_is_refused_or_takes_it() {
    for (end, refused) in [("COMMIT", true), ("ROLLBACK", false)] {
        let database = Database::with_extension();
        let (mut holder, first, second) = dead_and_pending(&database);
        holder.run("BEGIN");
        assert_eq!(in_order(&mut holder), [second]);
        let mut operator = database.session();
        replay(&mut operator, first);
        let call = HeldUp::start(&database, database.session(), |worker| worker.try_claim_in_order("w", 10));
        holder.run(end);
        let (mut worker, answer) = call.answer();
        if refused {
            let refusal = Refusal::expect(answer, "the claim");
            assert_eq!(refusal.sqlstate, "40001");
            assert!(!refusal.explained().is_empty());
            nothing_comes(&mut worker);
            holder.complete(second, "w");
            assert_eq!(waited_for(&mut worker), [first]);
        } else {
            assert_eq!(ids(&answer.expect("the other claim never was")), [first]);
            nothing_comes(&mut holder);
            worker.complete(first, "w");
            assert_eq!(waited_for(&mut worker), [second]);
        }
    }
}

#[test]
fn an_old_snapshot_does_not_hand_out_a_later_event_beside_a_replayed_one() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let (mut session, first, _) = dead_and_pending(&database);
        let mut old = database.session();
        old.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM outbox_event"));
        replay(&mut session, first);
        assert_eq!(waited_for(&mut session), [first]);
        assert_eq!(Refusal::expect(old.try_claim_in_order("w", 10), level).sqlstate, "40001");
        old.run("ROLLBACK");
        nothing_comes(&mut old);
    }
}

#[test]
fn under_any_isolation_level_an_aggregate_drains_in_order() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::with_extension();
        let mut session = database.session();
        let events = some(&mut session, 12);
        session.run(&format!("SET default_transaction_isolation = '{}'", level.to_lowercase()));
        let mut other = database.session();
        for (at, event) in events.iter().enumerate() {
            assert_eq!(waited_for(&mut session), [*event], "{level}");
            if at % 2 == 0 {
                session.complete(*event, "w");
            } else {
                other.complete(*event, "w");
            }
        }
    }
}

#[test]
fn an_aggregate_waits_for_an_open_claim_and_starts_over_when_that_is_rolled_back() {
    for (there, here) in [
        ("ROLLBACK", ""),
        ("ROLLBACK TO s", ""),
        ("PREPARE TRANSACTION 'gid'", "ROLLBACK PREPARED 'gid'"),
        ("", "SELECT pg_terminate_backend(pid, 60000)"),
    ] {
        let database = Database::with_extension();
        let gid = database.dsn();
        let (mut holder, mut worker) = (database.session(), database.session());
        let events = some(&mut holder, 2);
        holder.run("BEGIN; SAVEPOINT s");
        assert_eq!(in_order(&mut holder), events[..1]);
        nothing_comes(&mut worker);
        let backend = holder.backend().to_string();
        holder.run(&there.replace("gid", &gid));
        worker.run(&here.replace("gid", &gid).replace("pid", &backend));
        assert_eq!(waited_for(&mut worker), events[..1]);
    }
}

#[test]
fn an_aggregate_waits_for_an_open_settlement_and_stays_leased_when_that_is_rolled_back() {
    for settle in [
        "outbox_complete('id', 'w')",
        "outbox_complete_batch('{id}', 'w')",
        "outbox_fail('id', 'w', 'oops', 0)",
        "outbox_release_batch('{id}', 'w')",
    ] {
        for deletes in ["off", "on"] {
            let database = Database::with_extension();
            let (mut holder, mut worker) = (database.session(), database.session());
            holder.run(&format!("SET outbox.delete_completed = {deletes}"));
            let events = some(&mut holder, 2);
            assert_eq!(in_order(&mut holder), events[..1]);
            let settle = format!("SELECT {}", settle.replace("id", &events[0].to_string()));
            holder.run("BEGIN");
            holder.run(&settle);
            nothing_comes(&mut worker);
            holder.run("ROLLBACK");
            nothing_comes(&mut worker);
            nothing_comes(&mut holder);
            assert_eq!(holder.status(events[0]), "processing");
            holder.run(&settle);
            let next = if settle.contains("release") { events[0] } else { events[1] };
            assert_eq!(waited_for(&mut worker), [next], "{settle}");
        }
    }
}

#[test]
fn a_successor_whose_claim_is_rolled_back_is_found_again() {
    let database = Database::with_extension();
    let (mut session, mut other) = (database.session(), database.session());
    let events = some(&mut session, 3);
    assert_eq!(in_order(&mut session), events[..1]);
    session.complete(events[0], "w");
    session.run("BEGIN");
    assert_eq!(in_order(&mut session), events[1..2]);
    session.run("ROLLBACK");
    assert_eq!(waited_for(&mut session), events[1..2]);
    session.complete(events[1], "w");
    session.run("BEGIN");
    assert_eq!(in_order(&mut session), events[2..]);
    session.run("ROLLBACK");
    assert_eq!(waited_for(&mut other), events[2..]);
}

#[test]
fn what_a_session_settles_before_it_ends_is_followed_by_another_sessions_claims() {
    let database = Database::with_extension();
    let mut worker = database.session();
    let events = some(&mut worker, 20);
    // Blocked events enough, behind the cursor, that a sweep does not follow at once.
    worker.run(
        "SELECT outbox_enqueue(NULL, 'order', md5((n % 3)::text)::uuid, 'x', NULL, '1') FROM generate_series(1, 2000) AS n",
    );
    assert_eq!(in_order(&mut worker).len(), 4);
    worker.run("SELECT pg_sleep(0.1)");
    assert_eq!(in_order(&mut worker), NONE);
    for (done, next) in events.iter().zip(&events[1..]) {
        let mut settles = database.session();
        settles.complete(*done, "w");
        drop(settles);
        assert_eq!(waited_for(&mut worker), [*next]);
    }
}

#[test]
fn a_session_that_only_settles_hands_the_successors_on() {
    let database = Database::with_extension();
    let (mut claims, mut settles) = (database.session(), database.session());
    let moved = "SELECT available_at > created_at + '50 milliseconds' FROM outbox_event WHERE id = $1";
    let events = some(&mut claims, 2);
    let other = claims.enqueue(&Event { aggregate: Uuid::from_u128(2), ..Event::default() });
    assert_eq!(in_order(&mut claims), [events[0], other]);
    settles.complete(events[0], "w");
    assert!(!settles.value::<bool>(moved, &[&events[1]]));
    settles.run("SELECT pg_sleep(0.1)");
    settles.complete(other, "w");
    assert!(settles.value::<bool>(moved, &[&events[1]]));
    assert_eq!(in_order(&mut claims), events[1..]);
}

#[test]
fn a_head_that_is_ended_or_deleted_by_hand_makes_way() {
    for by_hand in [
        "UPDATE outbox_event SET status = 'completed' WHERE id = $1",
        "UPDATE outbox_event SET status = 'dead' WHERE id = $1",
        "DELETE FROM outbox_event WHERE id = $1",
    ] {
        for leased in [true, false] {
            let database = Database::with_extension();
            let mut worker = database.session();
            let later = "clock_timestamp() + '1 day'";
            let events = some(&mut worker, 2);
            if leased {
                assert_eq!(in_order(&mut worker), events[..1]);
            } else {
                worker
                    .execute(
                        &format!("UPDATE outbox_event SET available_at = {later} WHERE id = $1"),
                        &[&events[0]],
                    )
                    .expect("it is put off");
            }
            nothing_comes(&mut worker);
            worker.execute(by_hand, &[&events[0]]).expect("an owner may do that");
            assert_eq!(waited_for(&mut worker), events[1..], "{by_hand}, leased: {leased}");
        }
    }
}

#[test]
fn an_event_of_another_type_or_tenant_holds_its_aggregate_and_is_followed_by_whom_it_is_for() {
    let database = Database::with_extension();
    let (mut created, mut paid) = (database.session(), database.session());
    let event = |event_type| Event { event_type, ..Event::default() };
    let events = ["created", "paid", "created", "paid"].map(|name| created.enqueue(&event(name)));
    let claim = |session: &mut Client, name: &str| -> Vec<Uuid> {
        session.column(
            "SELECT id FROM outbox_claim_batch('w', 10, only_event_types => ARRAY[$1], ordered => true)",
            &[&name],
        )
    };
    for (at, event) in events.iter().enumerate() {
        let (mine, others) = if at % 2 == 0 { (&mut created, &mut paid) } else { (&mut paid, &mut created) };
        let (name, other) = if at % 2 == 0 { ("created", "paid") } else { ("paid", "created") };
        assert_eq!(claim(others, other), NONE);
        let start = Instant::now();
        let mut found = claim(mine, name);
        while found.is_empty() {
            assert!(start.elapsed() < DEADLINE, "nothing is found");
            found = claim(mine, name);
        }
        assert_eq!(found, [*event]);
        assert_eq!(claim(others, other), NONE);
        mine.complete(*event, "w");
    }
}

#[test]
fn a_warm_session_forgets_the_events_of_a_table_that_is_gone() {
    let database = Database::with_extension();
    let (mut worker, mut owner) = (database.session(), database.session());
    for statement in ["TRUNCATE outbox_event", "DROP EXTENSION outbox_ext; CREATE EXTENSION outbox_ext"] {
        let events = some(&mut worker, 600);
        // Long enough a row of settled events to be remembered as one.
        for event in &events[..550] {
            assert_eq!(in_order(&mut worker), [*event]);
            worker.complete(*event, "w");
        }
        owner.run(statement);
        let inserted: Vec<Uuid> = owner.column(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, created_at)
             SELECT 'order', $1, 'x', '1', '2020-01-01 00:00:00Z'::timestamptz + n * '1 s'::interval
             FROM generate_series(1, 3) AS n RETURNING id",
            &[&Uuid::from_u128(1)],
        );
        for event in inserted {
            assert_eq!(waited_for(&mut worker), [event], "after {statement}");
            worker.complete(event, "w");
        }
    }
}

#[test]
fn under_a_policy_by_tenant_each_tenants_aggregates_keep_their_order() {
    let database = Database::with_extension();
    let role = database.role("worker");
    let mut producer = database.session();
    producer.run(&format!(
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role};
         GRANT SELECT, UPDATE ON outbox_event TO {role};
         ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own_tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid)"
    ));
    let tenants = [1, 2].map(Uuid::from_u128);
    let events = tenants.map(|tenant| {
        let event = Event { tenant: Some(tenant), aggregate: tenant, ..Event::default() };
        [0; 4].map(|_| producer.enqueue(&event))
    });
    let mut worker = database.session_as(&role);
    for round in 0..4 {
        for (tenant, events) in tenants.iter().zip(&events) {
            worker.run(&format!("SET app.tenant = '{tenant}'"));
            assert_eq!(in_order(&mut worker), [events[round]]);
            assert_eq!(in_order(&mut worker), NONE);
        }
        for (tenant, events) in tenants.iter().zip(&events) {
            worker.run(&format!("SET app.tenant = '{tenant}'"));
            worker.complete(events[round], "w");
        }
    }
}

#[test]
fn an_expired_lease_that_was_taken_without_order_waits_for_the_one_in_flight() {
    let database = Database::with_extension();
    let (mut session, first, second) = dead_and_pending(&database);
    let other = session.enqueue(&Event { aggregate: Uuid::from_u128(2), ..Event::default() });
    assert_eq!(in_order(&mut session), [second, other]);
    replay(&mut session, first);
    // A worker that claims without order takes it beside the later one, and vanishes.
    assert_eq!(ids(&session.claim("crashes", 10)), [first]);
    session.run(&format!("SELECT * FROM outbox_extend_batch('{{{second},{other}}}', 'w')"));
    let expired = format!("UPDATE outbox_event SET locked_at = '2020-01-01' WHERE id = '{first}'");
    session.run(&expired);
    nothing_comes(&mut session);
    session.complete(other, "w");
    session.complete(second, "w");
    assert_eq!(waited_for(&mut session), [first]);
}

#[test]
fn workers_with_and_without_order_lose_nothing_between_them() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "SELECT outbox_enqueue(NULL, 'order', md5((n % 40)::text)::uuid, 'x', NULL, to_jsonb(n))
         FROM generate_series(1, 2000) AS n",
    );
    let done = crowd::each(&database, 4, |number, session| {
        let worker = format!("worker {number}");
        let mut done = Vec::new();
        while session
            .value::<bool>("SELECT EXISTS (SELECT FROM outbox_event WHERE completed_at IS NULL)", &[])
        {
            let claimed =
                if number % 2 == 0 { session.claim_in_order(&worker, 20) } else { session.claim(&worker, 3) };
            let claimed = ids(&claimed);
            let completed: Vec<Uuid> =
                session.column("SELECT outbox_complete_batch($1, $2)", &[&claimed, &worker]);
            assert_eq!(completed.len(), claimed.len());
            done.extend(claimed);
        }
        done
    });
    let mut done = done.concat();
    assert_eq!(done.len(), 2_000);
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 2_000);
}

#[test]
fn a_lease_that_expires_is_taken_over_before_the_next_event_and_the_late_settlement_is_refused() {
    let database = Database::with_extension();
    let (mut slow, mut worker) = (database.session(), database.session());
    let events = some(&mut slow, 2);
    assert_eq!(in_order(&mut slow), events[..1]);
    let claim = format!("SELECT id FROM outbox_claim_batch('w', 10, '{EXPIRED}', ordered => true)");
    assert_eq!(worker.column::<Uuid>(&claim, &[]), events[..1]);
    assert_eq!(slow.refused_complete(events[0], "w", Some(1)).sqlstate, "55000");
    nothing_comes(&mut slow);
    worker.try_complete(events[0], "w", Some(2)).expect("it holds the lease");
    assert_eq!(waited_for(&mut slow), events[1..]);
}

#[test]
fn what_comes_back_before_a_long_row_of_settled_events_is_found_too() {
    let database = Database::with_extension();
    let (mut worker, mut operator) = (database.session(), database.session());
    let events = some(&mut worker, 2_000);
    assert_eq!(in_order(&mut worker), events[..1]);
    assert_eq!(worker.fail(events[0], "w", 0), "dead");
    let mut next = 1;
    while next < 700 {
        assert_eq!(in_order(&mut worker), events[next..=next]);
        worker.complete(events[next], "w");
        next += 1;
    }
    replay(&mut operator, events[0]);
    let start = Instant::now();
    loop {
        let found = in_order(&mut worker);
        found.iter().for_each(|event| worker.complete(*event, "w"));
        if found == events[..1] {
            break;
        }
        assert!(found.is_empty() || found == events[next..=next], "one after the other");
        next += found.len();
        assert!(start.elapsed() < DEADLINE && next < events.len(), "the replayed event is not found");
    }
    assert_eq!(waited_for(&mut worker), events[next..=next]);
}

#[test]
fn two_claims_that_wait_for_each_other_after_two_replays_end_in_one_deadlock_error() {
    let database = Database::with_extension();
    let mut session = database.session();
    let [a, b] = [1, 2].map(|aggregate| {
        let event = Event { aggregate: Uuid::from_u128(aggregate), ..Event::default() };
        [0; 2].map(|_| session.enqueue(&event))
    });
    assert_eq!(in_order(&mut session), [a[0], b[0]]);
    for event in [a[0], b[0]] {
        assert_eq!(session.fail(event, "w", 0), "dead");
    }
    let (mut first, mut second) = (database.session(), database.session());
    first.run("BEGIN");
    assert_eq!(ids(&first.claim_in_order("first", 1)), [a[1]]);
    second.run("BEGIN");
    assert_eq!(ids(&second.claim_in_order("second", 1)), [b[1]]);
    [a[0], b[0]].into_iter().for_each(|event| replay(&mut session, event));
    let call = HeldUp::start(&database, first, |first| first.try_claim_in_order("first", 10));
    let answer = second.try_claim_in_order("second", 10);
    second.run("ROLLBACK");
    let (mut first, other) = call.answer();
    first.run("ROLLBACK");
    let refused = [answer, other].into_iter().filter_map(|answer| answer.err()).collect::<Vec<_>>();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].code().map(|state| state.code()), Some("40P01"));
    assert_eq!(waited_for(&mut session), [a[0], b[0]]);
}

#[test]
fn a_successor_that_somebody_has_locked_is_found_once_it_is_free() {
    let database = Database::with_extension();
    let (mut worker, mut reader) = (database.session(), database.session());
    let events = some(&mut worker, 2);
    assert_eq!(in_order(&mut worker), events[..1]);
    reader.run(&format!("BEGIN; SELECT FROM outbox_event WHERE id = '{}' FOR UPDATE", events[1]));
    worker.complete(events[0], "w");
    nothing_comes(&mut worker);
    reader.run("COMMIT");
    assert_eq!(waited_for(&mut worker), events[1..]);
}
