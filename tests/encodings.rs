//! Databases whose encoding is not UTF-8.

use support::refusal::Refusal;
use support::story::live_through;
use support::{Client, Database, Event, Outbox, Sql};

fn hash(session: &mut Client, payload: &str) -> String {
    session.value("SELECT outbox_payload_hash($1::text::jsonb)", &[&payload])
}

/// Enqueues, claims and hashes payloads with characters of an encoding, as in a UTF-8 database.
fn works_as_in_utf8(encoding: &str, payloads: &[&str]) {
    let (database, utf8) = (Database::with_encoding(encoding), Database::with_extension());
    let (mut session, mut reference) = (database.session(), utf8.session());
    live_through(&mut session, "");
    for payload in payloads {
        assert_eq!(hash(&mut session, payload), hash(&mut reference, payload), "{payload}");
        session.enqueue(&Event::carrying(payload));
        let claimed = session.claim_one("w");
        let json = |text: &str| text.parse::<serde_json::Value>().expect("JSON");
        assert_eq!(json(&claimed.payload), json(payload));
        session.complete(claimed.id, "w");
        enqueued_in_bulk_it_is_the_same(&mut session, payload);
    }
}

/// In a batch the payload, and texts with its characters, come as from a single call.
fn enqueued_in_bulk_it_is_the_same(session: &mut Client, payload: &str) {
    let same: bool = session.value(
        "WITH sent AS (SELECT $1::text::jsonb AS payload, left($1::text, 200) AS word),
              batch AS (SELECT id FROM sent, outbox_enqueue_batch(jsonb_build_array(jsonb_build_object(
                  'aggregate_type', word, 'aggregate_id', '00000000-0000-0000-0000-000000000001', 'event_type', word,
                  'deduplication_key', word, 'payload', payload)))),
              single AS (SELECT outbox_enqueue(NULL, word, '00000000-0000-0000-0000-000000000001', word, word, payload)
                         FROM sent, batch)
         SELECT single.outbox_enqueue = batch.id FROM single, batch",
        &[&payload],
    );
    assert!(same, "{payload}");
    session.claim_one("w");
}

#[test]
fn latin1_payloads_hash_as_in_utf8() {
    works_as_in_utf8("LATIN1", &[r#""naïve""#, r#"{"é": "ß", "e": "ÿ", "zz": 1}"#, r#"["\u00e9", "plain"]"#]);
}

#[test]
fn euc_jp_payloads_hash_as_in_utf8() {
    works_as_in_utf8(
        "EUC_JP",
        &[r#""日本語""#, r#"{"注文": {"状態": "支払済み"}, "a": "あ"}"#, r#""\u65e5""#],
    );
}

#[test]
fn keys_sort_by_their_utf8_bytes_whatever_the_encoding() {
    // In EUC_JP half-width katakana (8E ..) come before hiragana (A4 ..), in UTF-8 after them.
    works_as_in_utf8("EUC_JP", &["{\"\u{ff71}\": 1, \"\u{3042}\": 2}", "{\"\u{3042}\": 2, \"\u{ff71}\": 1}"]);
}

#[test]
fn a_conflict_and_a_lost_lease_are_reported_in_any_encoding() {
    for (encoding, word) in [("EUC_JP", "日本"), ("LATIN1", "é"), ("SQL_ASCII", "ascii")] {
        let database = Database::with_encoding(encoding);
        let mut session = database.session();
        let id = session.enqueue(&Event::keyed(word));
        assert_eq!(session.enqueue(&Event::keyed(word)), id);
        let other = Event { aggregate_type: word, ..Event::keyed(word) };
        let conflict = Refusal::expect(session.try_enqueue(&other), "a conflict");
        assert_eq!(conflict.sqlstate, "23505");
        conflict.explained();
        session.claim_one(word);
        let lost = session.refused_complete(id, "w", None);
        assert_eq!(lost.sqlstate, "55000");
        lost.explained();
        session.complete(id, word);
    }
}

#[test]
fn a_long_error_code_is_cut_where_a_character_ends() {
    for (encoding, code, bytes) in [
        ("UTF8", "日".repeat(600), 1023),
        ("UTF8", "x".to_owned() + &"é".repeat(600), 1023),
        ("UTF8", "x".repeat(2000), 1024),
        ("EUC_JP", "x".to_owned() + &"日".repeat(600), 1023),
        ("LATIN1", "é".repeat(2000), 1024),
    ] {
        let database = Database::with_encoding(encoding);
        let mut session = database.session();
        session.enqueue(&Event::default());
        let id = session.claim_one("w").id;
        session.execute("SELECT outbox_fail($1, 'w', $2)", &[&id, &code]).expect("the code is cut");
        let kept: String = session.value("SELECT last_error_code FROM outbox_event", &[]);
        let length: i32 = session.value("SELECT octet_length(last_error_code) FROM outbox_event", &[]);
        assert!(code.starts_with(&kept), "{encoding}");
        assert_eq!(length, bytes, "{encoding}");
    }
}

/// Bytes that are no UTF-8, which SQL_ASCII lets through. As a literal, since the driver sends UTF-8 only.
const BYTES: &str = r#"E'{"name": "\xe9"}'::jsonb"#;

#[test]
fn sql_ascii_bytes_that_are_no_text_are_refused_as_a_payload() {
    let database = Database::with_encoding("SQL_ASCII");
    let mut session = database.session();
    assert_eq!(session.refused(&format!("SELECT outbox_payload_hash({BYTES})"), &[]).sqlstate, "22021");
    let enqueue =
        format!("SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, {BYTES})");
    assert_eq!(session.refused(&enqueue, &[]).sqlstate, "22021");
    let insert = format!(
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', gen_random_uuid(), 'order.created', {BYTES})"
    );
    assert_eq!(session.refused(&insert, &[]).sqlstate, "22021");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM outbox_event", &[]), 0);
    live_through(&mut session, "");
}

#[test]
fn sql_ascii_hashes_utf8_bytes_as_a_utf8_database_does() {
    let (database, utf8) = (Database::with_encoding("SQL_ASCII"), Database::with_extension());
    let payload = r#"{"é": "日本"}"#;
    assert_eq!(hash(&mut database.session(), payload), hash(&mut utf8.session(), payload));
}

#[test]
fn sql_ascii_names_that_are_no_text_are_taken_or_refused_and_break_nothing() {
    let database = Database::with_encoding("SQL_ASCII");
    let mut session = database.session();
    let enqueue = r"SELECT outbox_enqueue(NULL, 'order', '00000000-0000-0000-0000-000000000001', 'order.created',
                                          E'k\xe9', $1::text::jsonb)";
    let id = session.value::<support::Uuid>(enqueue, &[&"1"]);
    assert_eq!(session.value::<support::Uuid>(enqueue, &[&"1"]), id);
    assert_eq!(session.refused(enqueue, &[&"2"]).sqlstate, "23505");
    session.run(r"SELECT id FROM outbox_claim_batch(E'w\xe9')");
    assert_eq!(session.refused_complete(id, "w", None).sqlstate, "55000");
    session
        .execute(r"SELECT outbox_fail($1, E'w\xe9', repeat(E'\xe9', 3000))", &[&id])
        .expect("it is leased");
    let kept: i32 = session.value("SELECT octet_length(last_error_code) FROM outbox_event", &[]);
    assert_eq!(kept, 1024);
}

#[test]
fn aggregate_ids_are_the_same_in_every_encoding() {
    let id = "SELECT outbox_aggregate_id($1, $2)::text";
    for (encoding, aggregate_type, key, golden) in [
        ("EUC_JP", "order", "42", "0f1e6c43-f4fa-5708-b8b7-5e622e764402"),
        ("LATIN1", "é", "ü", "ec96836f-398f-5245-bce6-63b2efbff894"),
        ("EUC_JP", "注文", "あ", "4549caea-a854-56be-87f8-e1aa3174247f"),
        ("SQL_ASCII", "é", "日本語", "67712ba4-c20c-581f-aca4-72bd5000e718"),
    ] {
        let database = Database::with_encoding(encoding);
        assert_eq!(database.session().value::<String>(id, &[&aggregate_type, &key]), golden, "{encoding}");
    }
    let database = Database::with_encoding("SQL_ASCII");
    let refusal = database.session().refused(r"SELECT outbox_aggregate_id('order', E'\xe9')", &[]);
    assert_eq!(refusal.sqlstate, "22021");
}
