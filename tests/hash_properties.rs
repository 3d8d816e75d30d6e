//! Two payloads have the same hash exactly when the server says that they are equal as jsonb.

use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use support::{Client, Database, json};

const BATCH: usize = 100;
const BATCHES: u32 = 200;

/// The pairs of a batch on which hash and equality disagree, and how many of the pairs are equal.
fn compare(session: &mut Client, pairs: &[(String, String)]) -> (Vec<String>, i64) {
    let (left, right): (Vec<&str>, Vec<&str>) = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).unzip();
    let rows = session
        .query(
            "WITH pair AS (
                 SELECT a, b, a::jsonb = b::jsonb AS equal,
                        outbox_payload_hash(a::jsonb) = outbox_payload_hash(b::jsonb) AS same_hash
                 FROM unnest($1::text[], $2::text[]) AS texts (a, b)
             )
             SELECT array_agg(a || ' and ' || b) FILTER (WHERE equal <> same_hash), count(*) FILTER (WHERE equal)
             FROM pair",
            &[&left, &right],
        )
        .expect("both texts are jsonb");
    (rows[0].get::<_, Option<_>>(0).unwrap_or_default(), rows[0].get(1))
}

#[test]
fn twenty_thousand_pairs_hash_the_same_exactly_when_they_are_equal_jsonb() {
    let database = Database::with_extension();
    let session = RefCell::new(database.session());
    let equal = Cell::new(0);
    let config = Config { cases: BATCHES, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&vec(json::pair(), BATCH), |pairs| {
        let (disagree, equal_here) = compare(&mut session.borrow_mut(), &pairs);
        equal.set(equal.get() + equal_here);
        assert!(disagree.is_empty(), "hash and equality disagree on {disagree:?}");
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    // The pairs must try both halves of the claim.
    let share = equal.get() as f64 / f64::from(BATCHES * BATCH as u32);
    assert!((0.3..0.8).contains(&share), "{share} of the pairs are equal");
}

/// Payloads and their canonical texts, as the specification has them.
const CANONICAL: [(&str, &str); 14] = [
    (r#"null"#, r#"null"#),
    (r#" { "b" : 1, "a" : [ true , false ] } "#, r#"{"a":[true,false],"b":1}"#),
    (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
    (r#"{"é":1,"z":2,"aa":3,"b":4}"#, r#"{"aa":3,"b":4,"z":2,"é":1}"#),
    (r#"[1.0, 1e0, 10e-1, -0, -0.0]"#, r#"[1,1,1,0,0]"#),
    (r#"[0.000001, 0.0000001, 123e-9]"#, r#"[0.000001,1e-7,1.23e-7]"#),
    (r#"[1e20, 1e21, 12.5e21]"#, r#"[100000000000000000000,1e+21,1.25e+22]"#),
    (r#"1E400"#, r#"1e+400"#),
    (r#"18446744073709551616"#, r#"18446744073709551616"#),
    (r#"-1234567890.12345678901234567890"#, r#"-1234567890.1234567890123456789"#),
    (r#""\u00e9\/\u0001\b\f\n\r\t\"\\\u007f""#, "\"é/\\u0001\\b\\f\\n\\r\\t\\\"\\\\\u{7f}\""),
    (r#""\ud83d\ude00""#, r#""😀""#),
    (r#""\\x41 E'\\101'""#, r#""\\x41 E'\\101'""#),
    (r#"{"":[],"a":{}}"#, r#"{"":[],"a":{}}"#),
];

#[test]
fn the_hash_is_sha_256_over_the_canonical_text() {
    let database = Database::with_extension();
    let mut session = database.session();
    for (payload, canonical) in CANONICAL {
        let (hash, expected): (String, String) = {
            let row = session
                .query_one(
                    "SELECT outbox_payload_hash($1::text::jsonb), encode(sha256(convert_to($2, 'UTF8')), 'hex')",
                    &[&payload, &canonical],
                )
                .expect("a payload");
            (row.get(0), row.get(1))
        };
        assert_eq!(hash, expected, "the canonical text of {payload} is {canonical}");
    }
}
