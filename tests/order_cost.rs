//! What ordered claims cost: buffers per event, with many blocked events ahead, in one long aggregate, in many
//! short ones; and the plans of what they ask. Counts, and no times.

use support::plan::{Plan, Recorder, buffers};
use support::{Client, Database, Outbox, Sql};

/// Events of so many aggregates, one after the other; the hash is given, since what it says does not matter here.
fn fill(session: &mut Client, aggregates: i32, events_of_each: i32) {
    session.run(&format!(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload, payload_hash)
         SELECT 'order', md5(aggregate::text)::uuid, 'order.created', '1', repeat('a', 64)
         FROM generate_series(1, {events_of_each}), generate_series(1, {aggregates}) AS aggregate"
    ));
}

/// A claim and the completion of what it handed out: the buffers that both touch, and how many events.
fn turn(session: &mut Client, batch_size: i32) -> (i64, i64) {
    let claim = format!("outbox_claim_batch('w', {batch_size}, ordered => true)");
    buffers(session, &format!("SELECT outbox_complete(id, 'w') FROM {claim}"))
}

/// The buffers an event of so many turns, which find events each.
fn buffers_an_event(session: &mut Client, turns: i32, batch_size: i32) -> i64 {
    let (mut touched, mut events) = (0, 0);
    for _ in 0..turns {
        let turn = turn(session, batch_size);
        assert!(turn.1 > 0, "there was an event to claim");
        touched += turn.0;
        events += turn.1;
    }
    touched / events
}

#[test]
fn one_long_aggregate_costs_the_same_from_the_first_event_to_the_five_thousandth() {
    let database = Database::with_extension();
    let (mut session, mut vacuum) = (database.session(), database.session());
    fill(&mut session, 1, 5_000);
    let first = buffers_an_event(&mut session, 500, 1);
    let mut last = first;
    for _ in 1..10 {
        // As autovacuum does: index pages of finished events are passed until then, some hundred events each.
        vacuum.run("VACUUM outbox_event");
        last = buffers_an_event(&mut session, 500, 1);
    }
    assert!(last <= first + first / 4, "an event cost {first} buffers at first and {last} at last");
}

#[test]
fn without_a_vacuum_one_long_aggregate_costs_a_page_more_for_a_hundred_events() {
    let database = Database::with_extension();
    let mut session = database.session();
    fill(&mut session, 1, 5_000);
    let first = buffers_an_event(&mut session, 500, 1);
    let between = buffers_an_event(&mut session, 4_000, 1);
    let last = buffers_an_event(&mut session, 500, 1);
    assert!(last <= first + 50, "an event cost {first} buffers at first, {between} and {last} at last");
}

#[test]
fn two_thousand_aggregates_of_one_event_cost_the_same_from_the_first_to_the_last() {
    for batch_size in [1, 50] {
        let database = Database::with_extension();
        let mut session = database.session();
        fill(&mut session, 2_000, 1);
        turn(&mut session, batch_size); // reads the catalogs and makes the plans
        let turns = 1_900 / batch_size;
        let first = buffers_an_event(&mut session, turns / 10, batch_size);
        buffers_an_event(&mut session, turns * 8 / 10, batch_size);
        let last = buffers_an_event(&mut session, turns / 10, batch_size);
        assert!(last <= first + first / 4, "an event cost {first} buffers at first and {last} at last");
    }
}

/// The fewest buffers that one of many ordered claims touches, each of which finds so many events. A claim that
/// runs a slice of a sweep touches more, and most do not.
fn fewest_buffers(session: &mut Client, events: i32, enough: i64) -> i64 {
    let mut fewest = i64::MAX;
    for _ in 0..500 {
        session.enqueue_many(events);
        let (touched, found) = buffers(session, "SELECT FROM outbox_claim_batch('w', 50, ordered => true)");
        assert_eq!(found, i64::from(events));
        fewest = fewest.min(touched);
        if fewest <= enough {
            break;
        }
    }
    fewest
}

/// A session, and one that holds the head of an aggregate with so many events.
fn beside_a_hot_aggregate(database: &Database, events: i32) -> (Client, Client) {
    let (mut session, mut holder) = (database.session(), database.session());
    fill(&mut session, 1, events);
    assert_eq!(holder.claim_in_order("holder", 10).len(), 1);
    (session, holder)
}

#[test]
fn twenty_thousand_events_that_wait_are_passed_once() {
    let few = Database::with_extension();
    let (mut session, _holder) = beside_a_hot_aggregate(&few, 2);
    // As many, so that the indexes are as deep.
    fill(&mut session, 20_000, 1);
    session.run("UPDATE outbox_event SET available_at = now() + '1 day' WHERE status = 'pending'");
    session.run("VACUUM outbox_event");
    let usual = (0..20).map(|_| fewest_buffers(&mut session, 20, i64::MAX)).min().expect("some claims");

    let many = Database::with_extension();
    let (mut session, _holder) = beside_a_hot_aggregate(&many, 20_000);
    let (walked, _) = buffers(&mut session, "SELECT FROM outbox_claim_batch('w', 1, ordered => true)");
    assert!(walked > 20_000, "the first claim asks each of them: {walked} buffers");
    let limit = usual + usual / 2;
    let last = fewest_buffers(&mut session, 20, limit);
    assert!(last <= limit, "a claim touched {usual} buffers beside one that waits, {last} beside many");
}

/// What an empty claim may touch: the catalogs' look-ups, a descent of the index or two.
const A_HANDFUL: i64 = 30;

#[test]
fn an_empty_claim_is_cheap_while_the_head_of_a_hot_aggregate_is_leased() {
    let database = Database::with_extension();
    let (mut session, _holder) = beside_a_hot_aggregate(&database, 20_000);
    session.claim_in_order("w", 1);
    let touched = fewest_buffers(&mut session, 0, A_HANDFUL);
    assert!(touched <= A_HANDFUL, "{touched} buffers");
}

/// Each probe goes through the index that is for it, whatever the planner knows.
fn through_their_indexes(plans: &[Plan]) {
    let mut asked = Vec::new();
    for plan in plans {
        assert!(plan.seeks(), "{:?} for {}", plan.kinds(), plan.query);
        for node in &plan.nodes {
            let (Some(alias), Some(index)) = (&node.alias, &node.index) else { continue };
            let expected = match alias.as_str() {
                "earlier" | "next" => "outbox_event_aggregate_idx",
                "other" => "outbox_event_in_flight_idx",
                _ => continue,
            };
            assert_eq!(index, expected, "for {alias} of {}", plan.query);
            asked.push(alias.clone());
        }
    }
    for probe in ["earlier", "next", "other"] {
        assert!(asked.iter().any(|asked| asked == probe), "{probe} was not asked");
    }
}

fn take_turns(recorder: &mut Recorder) {
    let (_, plans) = recorder.plans(|session| {
        for _ in 0..4 {
            for event in session.claim_in_order("w", 3) {
                session.complete(event.id, "w");
            }
        }
    });
    through_their_indexes(&plans);
}

#[test]
fn what_is_asked_of_an_aggregate_goes_through_the_indexes_by_aggregate() {
    for (aggregates, each) in [(1, 20_000), (20_000, 1), (200, 100)] {
        let database = Database::with_extension();
        let mut session = database.session();
        session.run("VACUUM ANALYZE outbox_event");
        // Planned on an empty table.
        let mut recorder = Recorder::start(&database);
        fill(&mut recorder.session, 1, 8);
        take_turns(&mut recorder);
        fill(&mut session, aggregates, each);
        take_turns(&mut recorder);
        // Planned with statistics, most events finished and then none.
        session.run("UPDATE outbox_event SET status = 'completed'");
        session.run("VACUUM ANALYZE outbox_event");
        fill(&mut session, 3, 100);
        take_turns(&mut recorder);
        take_turns(&mut Recorder::start(&database));
        session.run("DELETE FROM outbox_event WHERE completed_at IS NOT NULL");
        session.run("VACUUM ANALYZE outbox_event");
        take_turns(&mut recorder);
    }
}
