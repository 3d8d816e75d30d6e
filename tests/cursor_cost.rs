//! What the scan cursor saves: the buffers that a claim touches grow neither with what was finished under a
//! held snapshot nor with the leases that lie ahead. Counts, and no times.

use support::plan::buffers;
use support::{Client, Database, Sql};

const CLAIM: &str = "SELECT FROM outbox_claim_batch('w', 50)";

/// Writes events into the queue; the hash is given, since what it says does not matter here.
fn fill(session: &mut Client, columns: &str, values: &str, events: i32) {
    session.run(&format!(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash, {columns})
         SELECT 'order', gen_random_uuid(), 'order.created', '1', repeat('a', 64), {values}
         FROM generate_series(1, {events})"
    ));
}

/// The fewest buffers that one of many claims touches, each of which finds this many events. No more claims
/// are made once one touches few enough.
///
/// A claim that runs a slice of a sweep touches more. A sweep has many slices, and after it there is time for
/// many claims without one, however slow the machine.
fn fewest_buffers(session: &mut Client, events: i32, enough: i64) -> i64 {
    let mut fewest = i64::MAX;
    for _ in 0..500 {
        fill(session, "status", "'pending'", events);
        let (touched, found) = buffers(session, CLAIM);
        assert_eq!(found, i64::from(events));
        fewest = fewest.min(touched);
        if fewest <= enough {
            break;
        }
    }
    fewest
}

/// Moves events through the queue, from pending to completed.
fn flow(session: &mut Client, events: i32) {
    for _ in 0..events / 1_000 {
        fill(session, "status", "'pending'", 1_000);
        session.run("SELECT outbox_complete(id, 'w', attempt_count) FROM outbox_claim_batch('w', 1000)");
    }
}

/// Under a forgotten transaction the entries of finished events stay in the claim index.
fn stays_flat_under(forgotten: &str) {
    let database = Database::with_extension();
    let (mut worker, mut holder) = (database.session(), database.session());
    holder.run(forgotten);
    worker.run(CLAIM); // reads the catalogs and makes the plans
    let first = (0..5).map(|_| fewest_buffers(&mut worker, 50, i64::MAX)).min().expect("five claims");
    flow(&mut worker, 50_000);
    let limit = first + first / 2;
    let last = fewest_buffers(&mut worker, 50, limit);
    assert!(last <= limit, "a claim touched {first} buffers at first and {last} at last");

    // A new backend knows nothing, and walks once.
    let mut fresh = database.session();
    let (walked, _) = buffers(&mut fresh, CLAIM);
    assert!(walked > 10 * first, "there was little to walk past: {walked} buffers");
    let last = fewest_buffers(&mut fresh, 50, limit);
    assert!(last <= limit, "a claim touched {first} buffers at first and {last} in a new session");
    holder.run("COMMIT");
}

#[test]
fn a_claim_costs_the_same_after_fifty_thousand_events_under_a_held_snapshot() {
    stays_flat_under("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM outbox_event");
}

#[test]
fn a_claim_costs_the_same_after_fifty_thousand_events_beside_an_open_transaction_that_writes() {
    stays_flat_under("BEGIN; SELECT pg_current_xact_id()");
}

/// What an empty claim may touch: the catalogs' look-ups, a descent of the index or two.
const A_HANDFUL: i64 = 30;

#[test]
fn an_empty_claim_passes_two_hundred_thousand_leases_by() {
    let database = Database::with_extension();
    let mut worker = database.session();
    fill(
        &mut worker,
        "status, attempt_count, locked_at, locked_by",
        "'processing', 1, now(), 'other'",
        200_000,
    );
    let (walked, _) = buffers(&mut worker, CLAIM);
    assert!(walked > 10_000, "the first claim looks at them: {walked} buffers");
    let touched = fewest_buffers(&mut worker, 0, A_HANDFUL);
    assert!(touched <= A_HANDFUL, "{touched} buffers");
}

#[test]
fn an_empty_claim_stops_before_two_hundred_thousand_events_that_are_due_tomorrow() {
    let database = Database::with_extension();
    let mut worker = database.session();
    fill(&mut worker, "available_at", "now() + '1 day'", 200_000);
    worker.run(CLAIM); // reads the catalogs and makes the plans
    // Every claim, also one that looks behind itself: there is nothing behind.
    for _ in 0..20 {
        let (touched, _) = buffers(&mut worker, CLAIM);
        assert!(touched <= A_HANDFUL, "{touched} buffers");
    }
}
