//! `outbox_payload_hash`: golden values, and equality of hashes as equality of jsonb.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// Payloads, their canonical texts as the specification has them, and the SHA-256 of these texts, which
    /// another program computed. They never change: neither between releases nor between PostgreSQL's.
    const GOLDEN: [(&str, &str, &str); 47] = [
        ("1", "1", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ("1.0", "1", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ("1e0", "1", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        ("-0", "0", "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"),
        ("0.000", "0", "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"),
        ("1e2", "100", "ad57366865126e55649ecb23ae1d48887544976efea46a48eb5d85a6eeb4d306"),
        ("100.00", "100", "ad57366865126e55649ecb23ae1d48887544976efea46a48eb5d85a6eeb4d306"),
        ("-1.50", "-1.5", "37c2b212b94e5372b33df924ea2a91182d90c237d0bf942c1768e794ebef2376"),
        ("1e20", "100000000000000000000", "c344e9487bfbd5c4e03c9fb90d62a5dde5e00b54d55c46e9f4a803aea162b80c"),
        ("1e21", "1e+21", "241c4643fa70b1dcde1205b71be4e3bebb17e9f880c8e1a33d0ead6c27271d3c"),
        (
            "123456789012345678901",
            "123456789012345678901",
            "84ed10bcfb6360d89f008e12f0bd488170552c2cc0858f86894190047e7f56a0",
        ),
        (
            "1234567890123456789012",
            "1.234567890123456789012e+21",
            "6306dd6f7126170fa8590f3323da88acac6d600cdfe9ce6be203ecf121576659",
        ),
        ("0.000001", "0.000001", "159fb29a827ad04b260aa6c8ab6d8637f8f2b38af5c4f3cb49d6a21205e040f8"),
        ("1e-7", "1e-7", "5b33e02f2c5103a05d32f6ba9cb058294452bfbf393967f68bb30c1bdcbbab22"),
        ("0.0000123", "0.0000123", "c1f445e986d9d28608dfafe3d31385ddab918a3099cd217abd293716ed3d9399"),
        ("0.00000012300", "1.23e-7", "60880613bdf523cf9e6d60ae163612a08794d2a0655ed01072c0d2c6d5ca451b"),
        ("1e131071", "1e+131071", "c112d9b82ac79d88f44b2ed3b8299853a9dd9886f8c0ed206d250a7806b0c7ba"),
        ("-2.5e-16000", "-2.5e-16000", "73e51896d580d892c3c4ccd701baa0e113a3fb8252c6e87ff654c501cc9fba10"),
        (
            "123456789012345678901234567890",
            "1.2345678901234567890123456789e+29",
            "00f5922c4f60c750371b854311951ca1be41b66e960c31cb17b2ec9a5ccb743f",
        ),
        (
            "0.123456789012345678901234567890",
            "0.12345678901234567890123456789",
            "5063ed57641bc510c925f8d4c218d53c56e5c81f6ac5dcd64ffd8cdccfc77dc5",
        ),
        (
            "12345678901.2345678901234567890",
            "12345678901.234567890123456789",
            "030220f23de19d6182a50c47b9ca00a7b9c482ae2647323d91d3fbd531f10ee9",
        ),
        (
            "18446744073709551616",
            "18446744073709551616",
            "8b292fc2d32f1fd491784610c61b90dc4632a6e4add19261eca4c3979e4ea6d2",
        ),
        (
            "9007199254740993",
            "9007199254740993",
            "a1c367c29158357e62a3ff5d3e800fb7698a22396439dbc0a9d4929322afd35d",
        ),
        ("1E400", "1e+400", "356586379a39978534d3cef8473478be552d4309d397fe3c63866410279a42e1"),
        ("null", "null", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
        ("true", "true", "b5bea41b6c623f7c09f1bf24dcae58ebab3c0cdd90ad966bc43a45b44867e12b"),
        ("false", "false", "fcbcf165908dd18a9e49f7ff27810176db8e9f63b4352213741664245224f8aa"),
        (r#""""#, r#""""#, "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126"),
        (r#""\"\\\/""#, r#""\"\\/""#, "106814b96b4576ad5efb709458f6a5e1d0b0653cf234738e0ccc6c435bdef084"),
        (
            r#""\b\f\n\r\t""#,
            r#""\b\f\n\r\t""#,
            "88821412381596c0dc2c66e310ae7e66100d7e4196456e2e9f3d261d0b562746",
        ),
        (
            r#""\u0001\u000b\u001F""#,
            r#""\u0001\u000b\u001f""#,
            "13a5e72ca2f12fc441807ddb8ce1c99466bea0c4e7b2aba367a88e7844b41340",
        ),
        (
            r#""\u007f\u0080""#,
            "\"\u{7f}\u{80}\"",
            "43b95ba33161eef127ba934881064f7b7fb85127ff192d862411ccb34ce9b055",
        ),
        (r#""\ud83d\ude00""#, r#""😀""#, "7a0c50b92434b015545fe93ab723db2d4b2cdd14a441405624a9ce8be29f1d5a"),
        (r#""é""#, r#""é""#, "f2886017e9c7abacf804b54d64787dce2b611c9544ba21f3affdd126a6e50086"),
        ("\"e\u{301}\"", "\"e\u{301}\"", "3d68ce21f2899a475713cdbe7562ba9bdb6b1dfde8af1f221bdff4a0935b53b2"),
        (
            r#""\u2028<&>'""#,
            "\"\u{2028}<&>'\"",
            "2dc3eb79b6d8c466afef30998194a77adf465795ad0b1b56150ecdb70a82a2e0",
        ),
        (
            r#""\\x41 \\u0041""#,
            r#""\\x41 \\u0041""#,
            "95b743a1996344e9a048ff4de54fd37ae68e49fe975acb03570b15529f076f7a",
        ),
        ("[]", "[]", "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
        ("{}", "{}", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (
            "[ [ ] , { } , [ { } ] ]",
            "[[],{},[{}]]",
            "c5364ec3a0556c645c7ee4367a71e408ee41c3e7d87dde75720e406d1a597ab9",
        ),
        (
            r#"{"a": {"b": {"c": [1, {"d": null}]}}}"#,
            r#"{"a":{"b":{"c":[1,{"d":null}]}}}"#,
            "41295db02faa3f3d0e91767ef2e205812f338b00a58c4ba729f6d07720a563db",
        ),
        ("[3, 1, 2, 1.0]", "[3,1,2,1]", "c88b523f40667b5011b799e457a93064e335eaeda698fcce617feff0a3be737c"),
        (
            r#"{"b": 1, "aa": 2, "a": 3, "": 4, "B": 5}"#,
            r#"{"":4,"B":5,"a":3,"aa":2,"b":1}"#,
            "a51a76894de30bfaeceb602a5dc80378e14bb3a03c88580dab841cb322c7f3f4",
        ),
        (
            r#"{"\ud83d\ude00": 1, "\uffee": 2, "z": 3}"#,
            "{\"z\":3,\"\u{ffee}\":2,\"😀\":1}",
            "dc2899fcd1b8cffd702d35d68f6c521fac030c7946bfe1e80941138a196c0b18",
        ),
        (
            "{\"é\": 1, \"e\u{301}\": 2, \"f\": 3}",
            "{\"e\u{301}\":2,\"f\":3,\"é\":1}",
            "1e7439fefe4466804034da5171c5a12b8fbd83309738afddcee6f7d76d3a4578",
        ),
        (
            r#"{"a": 1, "b": 2, "a": {"c": 3}}"#,
            r#"{"a":{"c":3},"b":2}"#,
            "06473e1637d0dbb1f4226e8ff2f1a3449b4c18bd75066c1c57812e0db14d8b19",
        ),
        (
            r#"{"k\n": "v\t"}"#,
            r#"{"k\n":"v\t"}"#,
            "505558e8ff77b36268213be969191248d20d1b2ed80a6735a6aa4318efa281e0",
        ),
    ];

    /// The hash of a payload that is written in JSON.
    fn hash(payload: &str) -> String {
        one(&format!("outbox_payload_hash({})", quoted(payload)))
    }

    #[pg_test]
    fn golden_payloads_have_their_golden_hashes() {
        for (payload, canonical, golden) in GOLDEN {
            assert_eq!(hash(payload), golden, "{payload}");
            assert_eq!(hash(canonical), golden, "{canonical}");
        }
    }

    #[pg_test]
    fn golden_hashes_are_those_of_the_canonical_texts() {
        for (_, canonical, golden) in GOLDEN {
            let text = quoted(canonical);
            let sha: String = one(&format!("encode(sha256(convert_to({text}, 'UTF8')), 'hex')"));
            assert_eq!(sha, golden, "{canonical}");
        }
    }

    #[pg_test]
    fn golden_hashes_are_equal_exactly_when_the_payloads_are() {
        for (a, _, of_a) in GOLDEN {
            for (b, _, of_b) in GOLDEN {
                let equal = holds(&format!("{}::jsonb = {}::jsonb", quoted(a), quoted(b)));
                assert_eq!(of_a == of_b, equal, "{a} and {b}");
            }
        }
    }

    const EQUAL: [(&str, &str); 12] = [
        ("1", "1.000"),
        ("0", "-0.0e5"),
        ("100", "1e2"),
        ("0.10", "10e-2"),
        ("1e131071", "10e131070"),
        (r#"{"a":1,"b":2}"#, r#" { "b" : 2 , "a" : 1 } "#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":{"b":1},"a":{"c":1}}"#, r#"{"a":{"c":1}}"#),
        (r#""A""#, r#""\u0041""#),
        (r#""/""#, r#""\/""#),
        (r#""\ud83d\ude00""#, r#""😀""#),
        ("[1,[2.0]]", "[ 1 , [ 2 ] ]"),
    ];

    const UNEQUAL: [(&str, &str); 30] = [
        ("1", "-1"),
        ("1", "10"),
        ("1", r#""1""#),
        ("1", "true"),
        ("1", "[1]"),
        ("0", "false"),
        ("0.1", "1"),
        ("1e400", "1e401"),
        ("1e-400", "0"),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551616", "18446744073709551615"),
        ("1.0000000000000000000000001", "1"),
        ("123456789012345678901234567890", "123456789012345678901234567891"),
        ("null", r#""null""#),
        ("null", "[]"),
        ("null", r#""""#),
        ("[]", "{}"),
        ("[]", "[[]]"),
        ("[null]", "[]"),
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[1,[2]]"),
        (r#"["a,b"]"#, r#"["a","b"]"#),
        (r#"["a\",\"b"]"#, r#"["a","b"]"#),
        (r#"{"a":"b"}"#, r#"["a","b"]"#),
        (r#"{"a":null}"#, "{}"),
        (r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"ab":1}"#, r#"{"a":1}"#),
        (r#""a""#, r#""a ""#),
        (r#""\\u0041""#, r#""A""#),
        ("\"\u{e9}\"", "\"e\u{301}\""),
    ];

    /// Checks a pair of payloads: whether PostgreSQL says that they are equal, and their hashes.
    fn assert_pair(a: &str, b: &str, equal: bool) {
        let same = holds(&format!("{}::jsonb = {}::jsonb", quoted(a), quoted(b)));
        assert_eq!(same, equal, "{a} and {b} as jsonb");
        assert_eq!(hash(a) == hash(b), equal, "{a} and {b}");
    }

    #[pg_test]
    fn payloads_that_are_equal_have_one_hash() {
        EQUAL.into_iter().for_each(|(a, b)| assert_pair(a, b, true));
    }

    #[pg_test]
    fn payloads_that_differ_have_different_hashes() {
        UNEQUAL.into_iter().for_each(|(a, b)| assert_pair(a, b, false));
    }

    #[pg_test]
    fn every_control_character_has_its_escape() {
        for byte in 1..0x20_u8 {
            let escape = match byte {
                0x08 => r"\b".into(),
                0x09 => r"\t".into(),
                0x0A => r"\n".into(),
                0x0C => r"\f".into(),
                0x0D => r"\r".into(),
                _ => format!(r"\u{byte:04x}"),
            };
            let sha = format!("encode(sha256(convert_to('\"{escape}\"', 'UTF8')), 'hex')");
            assert_eq!(
                one::<String>(&format!("outbox_payload_hash(to_jsonb(chr({byte})))")),
                one::<String>(&sha)
            );
        }
    }

    #[pg_test]
    fn five_thousand_levels_of_nesting_are_hashed() {
        let nested = |open: &str, inner: &str, close: &str| {
            hash(&format!("{}{inner}{}", open.repeat(5000), close.repeat(5000)))
        };
        let arrays = "bb0fe1604ba08f14daa9daf72e5db17b282e6e357c43d7b85b56f2d68334fedb";
        assert_eq!(nested("[", "", "]"), arrays);
        let objects = "7992345efffeb76745df5e349a774278bc0ca142948dc655a97b398556fa42f5";
        assert_eq!(nested("{\"a\": ", "1.0", "}"), objects);
    }

    /// A payload of some 400 kB, and its hash.
    const LARGE: &str = "jsonb_build_object(
        'text', repeat('x', 300000),
        'list', (SELECT jsonb_agg(n ORDER BY n) FROM generate_series(0, 19999) AS n))";
    const LARGE_HASH: &str = "83b5d47e87f567afec52e9ed3e84221906f95e814f2bd77c2ce8e81eabd9ad49";

    /// A table with one payload, stored in this way; and whether it is as small as this says.
    fn store(payload: &str, storage: &str, bytes: std::ops::Range<i32>) {
        run(&format!(
            "CREATE TEMP TABLE stored (payload jsonb);
             ALTER TABLE stored ALTER payload SET STORAGE {storage};
             INSERT INTO stored VALUES ({payload})"
        ));
        let size: i32 = one("pg_column_size(payload) FROM stored");
        assert!(bytes.contains(&size), "{storage}: {size} bytes");
    }

    #[pg_test]
    fn a_large_payload_is_hashed_before_it_is_stored() {
        assert_eq!(one::<String>(&format!("outbox_payload_hash({LARGE})")), LARGE_HASH);
    }

    #[pg_test]
    fn a_payload_that_is_compressed_out_of_line_is_hashed() {
        store(LARGE, "EXTENDED", 10_000..400_000);
        assert_eq!(one::<String>("outbox_payload_hash(payload) FROM stored"), LARGE_HASH);
    }

    #[pg_test]
    fn a_payload_that_is_out_of_line_is_hashed() {
        store(LARGE, "EXTERNAL", 400_000..900_000);
        assert_eq!(one::<String>("outbox_payload_hash(payload) FROM stored"), LARGE_HASH);
    }

    #[pg_test]
    fn a_payload_that_is_compressed_in_the_row_is_hashed() {
        store("jsonb_build_array(repeat('x', 3000))", "MAIN", 20..200);
        assert!(holds("outbox_payload_hash(payload) =
                       encode(sha256(convert_to('[\"' || repeat('x', 3000) || '\"]', 'UTF8')), 'hex') FROM stored"));
    }

    #[pg_test]
    fn a_payload_with_a_short_header_is_hashed() {
        store(r#"'{"s": "tiny"}'"#, "EXTENDED", 10..30);
        let tiny = "858c1e1bb19bdb9c96a09026058c16c5529d39e2291e776466fb5a75d4266fb7";
        assert_eq!(one::<String>("outbox_payload_hash(payload) FROM stored"), tiny);
    }

    #[pg_test]
    fn a_payload_inside_another_is_hashed_as_if_it_stood_alone() {
        let inner = r#"'{"outer": {"n": [1.0, "é"]}}'::jsonb -> 'outer'"#;
        assert_eq!(one::<String>(&format!("outbox_payload_hash({inner})")), hash(r#"{"n":[1,"é"]}"#));
    }

    #[pg_test]
    fn a_hash_is_64_lower_case_hex_digits() {
        assert!(holds("outbox_payload_hash('{}') ~ '^[0-9a-f]{64}$'"));
    }

    #[pg_test]
    fn sql_null_has_no_hash_and_json_null_has_one() {
        let refusal = assert_refused("outbox_payload_hash(NULL)", "22004", "payload");
        assert_eq!(refusal.message, "payload must not be null");
        hash("null");
    }

    #[pg_test]
    fn what_is_no_jsonb_is_refused_before_it_is_hashed() {
        for (text, sqlstate) in [
            (r#""\u0000""#, "22P05"),
            (r#""\ud83d""#, "22P02"),
            ("NaN", "22P02"),
            ("Infinity", "22P02"),
            ("", "22P02"),
            ("1e1000000", "22003"),
            (&"[".repeat(100_000), "54001"),
        ] {
            let payload = format!("{}::jsonb", quoted(text));
            let refusal = refused(&format!("SELECT {}", enqueue_call(&[("payload", &payload)])));
            assert_eq!(refusal.sqlstate, sqlstate, "{refusal:?}");
        }
    }

    #[pg_test]
    fn the_hash_serves_in_a_generated_column_and_an_index() {
        run("CREATE TEMP TABLE hashed (
                 payload jsonb, hash text GENERATED ALWAYS AS (outbox_payload_hash(payload)) STORED);
             CREATE UNIQUE INDEX ON hashed (outbox_payload_hash(payload));
             INSERT INTO hashed VALUES ('[1]')");
        assert_eq!(one::<String>("hash FROM hashed"), hash("[1]"));
        assert_eq!(refused("INSERT INTO hashed VALUES ('[1.0]')").sqlstate, "23505");
    }
}
