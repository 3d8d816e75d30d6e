//! The backend's memory stays flat, however often the functions are called.

use support::{Client, Database, Event, Outbox, Sql};

/// A statement so many times in one transaction; what PostgreSQL's own memory grows by after the first fifth.
const REPEAT: &str = "
    DO $$
    DECLARE
        memory bigint;
    BEGIN
        FOR n IN 1 .. {times} LOOP
            {statement}
            IF n = {times} / 5 THEN
                SELECT sum(used_bytes) INTO memory FROM pg_backend_memory_contexts;
            END IF;
        END LOOP;
        SELECT sum(used_bytes) - memory INTO memory FROM pg_backend_memory_contexts;
        PERFORM set_config('test.growth', memory::text, false);
    END
    $$";

fn repeat(session: &mut Client, times: i64, statement: &str) -> i64 {
    session.run(&REPEAT.replace("{times}", &times.to_string()).replace("{statement}", statement));
    session.value("SELECT current_setting('test.growth')::bigint", &[])
}

/// What the whole process holds for itself, as the system counts it.
fn resident_bytes(session: &mut Client) -> i64 {
    let backend = session.backend();
    let status =
        std::fs::read_to_string(format!("/proc/{backend}/status")).expect("the backend runs on this machine");
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    1024 * kilobytes.expect("its resident memory").parse::<i64>().expect("a number")
}

/// Neither the transaction nor, after it, the process has kept anything of a call; the limit leaves room for
/// what the measuring itself takes.
fn stays_flat(session: &mut Client, times: i64, statement: &str) {
    let limit = times * 20 + 80_000;
    repeat(session, times, statement);
    let before = resident_bytes(session);
    let grown = repeat(session, times, statement);
    let kept = resident_bytes(session) - before;
    assert!(grown < limit, "{grown} bytes more within {times} times: {statement}");
    assert!(kept < limit, "{kept} bytes more after {times} times: {statement}");
}

#[test]
fn enqueues_keep_nothing() {
    let database = Database::with_extension();
    let mut session = database.session();
    for call in [
        "outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '{\"a\": [1, \"b\"]}')",
        "outbox_enqueue(NULL, 'order', '00000000-0000-0000-0000-000000000001', 'order.created', 'k', '{}')",
        "outbox_payload_hash('{\"a\": [1, 2.5e-9, \"b\"], \"c\": {}}')",
    ] {
        stays_flat(&mut session, 5_000, &format!("PERFORM {call};"));
    }
}

/// As an array of two events, with keys or a fault.
fn batch_call(first: &str, second: &str) -> String {
    let element = |rest| {
        format!(
            r#"{{"aggregate_type": "order", "aggregate_id": "00000000-0000-0000-0000-000000000001",
                 "event_type": "order.created", "payload": {{"a": [1, "b"]}}{rest}}}"#
        )
    };
    format!("outbox_enqueue_batch('[{}, {}]')", element(first), element(second))
}

#[test]
fn batches_keep_nothing() {
    let database = Database::with_extension();
    let mut session = database.session();
    let (a, b) = (r#", "deduplication_key": "a""#, r#", "deduplication_key": "b""#);
    for call in [batch_call("", ""), batch_call(a, b), batch_call(a, a)] {
        stays_flat(&mut session, 3_000, &format!("PERFORM * FROM {call};"));
    }
}

#[test]
fn claims_and_settlements_keep_nothing() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(2_000);
    for call in [
        "outbox_complete(id, 'w', attempt_count) FROM outbox_claim_batch('w', 1)",
        "outbox_fail(id, 'w', 'oops', 1) FROM outbox_claim_batch('w', 1)",
        "outbox_claim_batch('w', 1)",
    ] {
        stays_flat(&mut session, 300, &format!("PERFORM {call};"));
    }
}

#[test]
fn caught_errors_keep_nothing() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue(&Event::keyed("k"));
    for call in [
        "outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', 'k', '2')",
        "outbox_enqueue(NULL, 'order', NULL, 'order.created', NULL, '2')",
        "outbox_complete(gen_random_uuid(), 'w')",
        "outbox_claim_batch('w', -1)",
        &batch_call("", r#", "available_at": "never""#),
        &batch_call("", r#", "deduplication_key": "k""#),
    ] {
        stays_flat(
            &mut session,
            3_000,
            &format!("BEGIN PERFORM {call}; EXCEPTION WHEN OTHERS THEN NULL; END;"),
        );
    }
    assert_eq!(session.claim("w", 10).len(), 1);
}
