//! Claims of some event types, or of one tenant.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const A: &str = "'7e000000-0000-4000-8000-00000000000a'";
    const B: &str = "'7e000000-0000-4000-8000-00000000000b'";

    fn of_type(event_type: &str) -> String {
        enqueue(&[("event_type", &quoted(event_type))])
    }

    fn of_tenant(tenant: &str) -> String {
        enqueue(&[("tenant_id", tenant)])
    }

    #[pg_test]
    fn only_the_event_types_asked_for_are_claimed() {
        let [paid, _shipped, refunded, again] = ["paid", "shipped", "refunded", "paid"].map(of_type);
        assert_eq!(claim("'w', only_event_types => '{refunded,paid,unknown,paid}'"), [paid, refunded, again]);
        assert_eq!(claim("'w', only_event_types => '{unknown}'"), [""; 0]);
    }

    #[pg_test]
    fn event_types_are_compared_as_they_are_and_not_as_patterns() {
        let [_a, _b, odd] = ["paid", "Paid", "pa%d, \"x\" é"].map(of_type);
        assert_eq!(claim(r#"'w', only_event_types => ARRAY['pa%d, "x" é', 'pai_']"#), [odd]);
    }

    #[pg_test]
    fn only_the_tenant_asked_for_is_claimed() {
        let [a, _b, _none, again] = [A, B, "NULL", A].map(of_tenant);
        assert_eq!(claim(&format!("'w', only_tenant => {A}")), [a, again]);
        assert_eq!(claim("'w'").len(), 2);
    }

    #[pg_test]
    fn both_filters_and_an_order_go_together() {
        let event =
            |tenant, event_type: &str| enqueue(&[("tenant_id", tenant), ("event_type", &quoted(event_type))]);
        let first = event(A, "paid");
        let _ = (event(A, "paid"), event(B, "paid"), event(A, "shipped"));
        let call = format!("'w', only_tenant => {A}, only_event_types => '{{paid}}', ordered => true");
        assert_eq!(claim(&call), [first]);
    }

    #[pg_test]
    fn expired_leases_of_other_types_are_left_alone() {
        let mut clock = Clock::stopped();
        let paid = of_type("paid");
        let shipped = of_type("shipped");
        assert_eq!(claim("'w'").len(), 2);
        clock.advance("1 hour");
        assert_eq!(claim("'x', only_event_types => '{paid}', max_attempts => 0"), [""; 0]);
        assert_eq!(columns(&paid)["status"], "dead");
        assert_eq!(columns(&shipped)["status"], "processing");
        assert_eq!(claim("'x', only_event_types => '{shipped}'"), [shipped]);
    }

    #[pg_test]
    fn a_backlog_of_other_types_is_passed_once() {
        run("INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
             SELECT 'order', gen_random_uuid(), 'other', '1' FROM generate_series(1, 5000)");
        assert_eq!(claim_at_once("'w', 10, only_event_types => '{mine}'"), [""; 0]);
        let mine = of_type("mine");
        assert_eq!(claim_at_once("'w', 10, only_event_types => '{mine}'"), [mine]);
        assert_eq!(claim_at_once("'w', 7, only_event_types => '{other}'").len(), 7);
    }

    #[pg_test]
    fn filters_are_checked() {
        let id = enqueue(&[]);
        for (arguments, sqlstate, parameter) in [
            ("only_event_types => '{}'", "22023", "only_event_types"),
            ("only_event_types => ARRAY['paid', NULL]", "22004", "only_event_types"),
            ("only_event_types => ARRAY['paid', '']", "22023", "only_event_types"),
            ("only_event_types => ARRAY[repeat('t', 256)]", "22023", "only_event_types"),
            ("only_tenant => '00000000-0000-0000-0000-000000000000'", "22023", "only_tenant"),
            ("ordered => NULL", "22004", "ordered"),
        ] {
            assert_refused(&format!("outbox_claim_batch('w', {arguments})"), sqlstate, parameter);
        }
        assert_eq!(columns(&id)["status"], "pending");
    }
}
