//! Ids for aggregates whose keys are no uuid.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    fn id(aggregate_type: &str, key: &str) -> String {
        one(&format!("outbox_aggregate_id({}, {})::text", quoted(aggregate_type), quoted(key)))
    }

    /// The examples of docs/aggregate-id.md, computed with another library. They never change.
    const GOLDEN: [(&str, &str, &str); 9] = [
        ("order", "42", "0f1e6c43-f4fa-5708-b8b7-5e622e764402"),
        ("order", "42 ", "e74b0353-f090-5c32-ad39-20822538fda0"),
        ("Order", "42", "ff37db97-07f0-5b9b-8824-e7e17064bd32"),
        ("invoice", "42", "9fa1473c-e7ee-5d25-bd6c-3f5695fe4f26"),
        ("order", "-1", "d48131cb-4a13-5d52-a6ee-e2c354f509ee"),
        ("a", "b:c", "936b9b8b-908a-5299-9434-f594b21036d1"),
        ("a:b", "c", "c1486b22-431f-542c-a64d-90cea1568205"),
        ("\u{e9}", "日本語", "67712ba4-c20c-581f-aca4-72bd5000e718"),
        ("e\u{301}", "日本語", "c145d804-0756-5ef5-b7e1-2ae76d75a7a5"),
    ];

    #[pg_test]
    fn ids_are_the_golden_ones() {
        for (aggregate_type, key, golden) in GOLDEN {
            assert_eq!(id(aggregate_type, key), golden, "{aggregate_type} {key}");
        }
    }

    #[pg_test]
    fn the_documentation_shows_the_golden_ids() {
        let documented = include_str!("../docs/aggregate-id.md");
        for (_, _, golden) in GOLDEN {
            assert!(documented.contains(golden), "{golden}");
        }
    }

    #[pg_test]
    fn ids_are_name_based_uuids_of_version_5() {
        assert!(holds(
            "bool_and(id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$')
                 AND count(DISTINCT id) = 1000
             FROM (SELECT outbox_aggregate_id('order', n::text)::text AS id FROM generate_series(1, 1000) AS n) AS q"
        ));
    }

    #[pg_test]
    fn a_type_and_a_key_do_not_run_into_one_another() {
        let text = "x:y/z.1 ";
        let mut ids: Vec<_> = (1..text.len()).map(|at| id(&text[..at], &text[at..])).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), text.len() - 1);
    }

    #[pg_test]
    fn null_is_refused() {
        assert_refused("outbox_aggregate_id(NULL, '1')", "22004", "aggregate_type");
        assert_refused("outbox_aggregate_id('order', NULL)", "22004", "key");
    }

    #[pg_test]
    fn what_is_empty_or_too_long_is_refused() {
        assert_refused("outbox_aggregate_id('', '1')", "22023", "aggregate_type");
        assert_refused("outbox_aggregate_id(repeat('x', 256), '1')", "22023", "aggregate_type");
        assert_refused("outbox_aggregate_id('order', '')", "22023", "key");
    }

    #[pg_test]
    fn keys_may_be_of_any_length() {
        for length in [1, 255, 256, 10_000_000] {
            assert!(holds(&format!(
                "outbox_aggregate_id(repeat('x', 255), repeat('k', {length})) IS NOT NULL"
            )));
        }
    }

    #[pg_test]
    fn parameters_can_be_named_and_an_index_can_hold_the_id() {
        run("CREATE TEMP TABLE orders (id bigint);
             CREATE INDEX ON orders (outbox_aggregate_id('order', id::text));
             INSERT INTO orders VALUES (42)");
        assert!(holds(
            "outbox_aggregate_id(key => '42', aggregate_type => 'order') = outbox_aggregate_id('order', id::text) FROM orders"
        ));
    }
}
