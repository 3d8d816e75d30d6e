//! Payloads of all sizes and depths, from the call to the worker and back out.

use support::refusal::Refusal;
use support::story::live_through;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// Enqueues what an SQL expression makes twice under one key, claims and completes it; true if the payload that
/// the worker gets, the stored one and their hashes are what they were made as.
const ROUND_TRIP: &str = "
    WITH made AS MATERIALIZED (SELECT {} AS payload),
    first AS MATERIALIZED (
        SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, payload) AS id FROM made),
    claimed AS MATERIALIZED (SELECT c.* FROM first, LATERAL outbox_claim_batch('w', 2) AS c)
    SELECT (SELECT count(*) FROM claimed) = 1
       AND (SELECT payload FROM claimed) = (SELECT payload FROM made)
       AND (SELECT id FROM claimed) = (SELECT id FROM first)";

fn comes_through(session: &mut Client, payload: &str) {
    let whole: bool = session.value(&ROUND_TRIP.replace("{}", payload), &[]);
    assert!(whole, "{payload}");
    let id: Uuid = session.value("SELECT id FROM outbox_event WHERE status = 'processing'", &[]);
    session.complete(id, "w");
    let kept: bool = session.value(
        &format!(
            "SELECT payload = {payload} AND payload_hash = outbox_payload_hash({payload})
             FROM outbox_event WHERE id = $1"
        ),
        &[&id],
    );
    assert!(kept, "{payload}");
}

#[test]
fn nine_kilobytes_one_megabyte_and_sixty_four_come_through() {
    let database = Database::with_extension();
    let mut session = database.session();
    for size in ["9000", "1000000", "64000000"] {
        comes_through(&mut session, &format!("jsonb_build_object('text', repeat('aé中 ', {size} / 7))"));
    }
}

#[test]
fn a_megabyte_that_does_not_compress_comes_through() {
    let database = Database::with_extension();
    let mut session = database.session();
    comes_through(
        &mut session,
        "(SELECT jsonb_agg(encode(sha256(n::text::bytea), 'base64')) FROM generate_series(1, 20000) AS n)",
    );
}

#[test]
fn two_hundred_and_five_thousand_levels_come_through() {
    let database = Database::with_extension();
    let mut session = database.session();
    for depth in [200, 5_000] {
        comes_through(&mut session, &format!("(repeat('[', {depth}) || repeat(']', {depth}))::jsonb"));
        comes_through(
            &mut session,
            &format!("(repeat('{{\"a\":', {depth}) || '1' || repeat('}}', {depth}))::jsonb"),
        );
    }
}

#[test]
fn a_hundred_thousand_levels_are_refused_and_the_session_goes_on() {
    let database = Database::with_extension();
    let mut session = database.session();
    let too_deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let refusal = Refusal::expect(session.try_enqueue(&Event::carrying(&too_deep)), "100,000 levels");
    assert_eq!(refusal.sqlstate, "54001");
    live_through(&mut session, "");
}

#[test]
fn the_hash_takes_any_depth_that_jsonb_takes() {
    // With more stack PostgreSQL takes deeper values; the hash must not need any of it.
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("SET max_stack_depth = '7MB'");
    comes_through(&mut session, "(repeat('[', 15000) || repeat(']', 15000))::jsonb");
}

#[test]
fn many_elements_members_and_long_keys_come_through() {
    let database = Database::with_extension();
    let mut session = database.session();
    comes_through(&mut session, "(SELECT jsonb_agg(n) FROM generate_series(1, 300000) AS n)");
    comes_through(
        &mut session,
        "(SELECT jsonb_object_agg('key ' || n, n) FROM generate_series(1, 100000) AS n)",
    );
    comes_through(&mut session, "jsonb_build_object(repeat('k', 100000), repeat('é', 40000))");
}

#[test]
fn numbers_keep_every_digit() {
    let database = Database::with_extension();
    let mut session = database.session();
    for number in
        ["1E400", "-0", "18446744073709551616", "0.1234567890123456789012345678901", "1e131071", "1e-16000"]
    {
        comes_through(&mut session, &format!("'{number}'::jsonb"));
    }
    let text: String = session
        .value("SELECT payload::text FROM outbox_event WHERE payload = '18446744073709551616'::jsonb", &[]);
    assert_eq!(text, "18446744073709551616");
}

#[test]
fn what_jsonb_refuses_is_refused_before_anything_is_written() {
    let database = Database::with_extension();
    let mut session = database.session();
    for payload in [r#""\u0000""#, r#""\ud83d""#, "{", "", "NaN"] {
        let refusal = Refusal::expect(session.try_enqueue(&Event::carrying(payload)), payload);
        assert_eq!(&refusal.sqlstate[..2], "22", "{refusal:?}");
    }
    assert_eq!(session.value::<i64>("SELECT count(*) FROM outbox_event", &[]), 0);
    let null = session.enqueue(&Event::carrying("null"));
    assert_eq!(session.claim_one("w").payload, "null");
    session.complete(null, "w");
}
