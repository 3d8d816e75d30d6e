//! The settings: how they are registered, and that each is read.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    #[pg_test]
    fn the_settings_are_registered_with_units_ranges_and_defaults() {
        let registered = texts(
            "SELECT concat_ws(' ', name, boot_val, coalesce(unit, '-'), min_val, max_val, vartype, context)
             FROM pg_settings WHERE name LIKE 'outbox.%' ORDER BY name",
        );
        assert_eq!(
            registered,
            [
                "outbox.backoff_base 1000 ms 0 2147483647 integer user",
                "outbox.backoff_max 3600000 ms 0 2147483647 integer user",
                "outbox.delete_completed off - bool user",
                "outbox.max_attempts 25 - 0 2147483647 integer user",
                "outbox.max_payload_bytes 0 B 0 2147483647 integer superuser",
                "outbox.notify_channel  - string user",
            ]
        );
    }

    #[pg_test]
    fn the_settings_are_described() {
        assert!(holds(
            "bool_and(length(short_desc) > 20 AND length(extra_desc) > 20)
                       FROM pg_settings WHERE name LIKE 'outbox.%'"
        ));
    }

    #[pg_test]
    fn durations_are_set_and_shown_with_units() {
        for (given, shown) in
            [("250ms", "250ms"), ("2000", "2s"), ("1.5min", "90s"), ("1h", "1h"), ("0", "0")]
        {
            for name in ["outbox.backoff_base", "outbox.backoff_max"] {
                run(&format!("SET LOCAL {name} = '{given}'"));
                assert_eq!(one::<String>(&format!("current_setting('{name}')")), shown, "{name} = {given}");
            }
        }
    }

    #[pg_test]
    fn values_out_of_range_or_malformed_are_refused() {
        for name in
            ["outbox.max_attempts", "outbox.backoff_base", "outbox.backoff_max", "outbox.max_payload_bytes"]
        {
            for given in ["-1", "2147483648", "many", "", "1 parsec", "NaN"] {
                let refusal = refused(&format!("SET LOCAL {name} = '{given}'"));
                assert_eq!(refusal.sqlstate, "22023", "{name} = {given}: {refusal:?}");
            }
        }
        assert_eq!(refused("SET LOCAL outbox.max_attempts = '1s'").sqlstate, "22023");
    }

    #[pg_test]
    fn a_channel_that_notify_would_refuse_is_refused_when_it_is_set() {
        for channel in ["x".repeat(63), "é".repeat(31), "Any 'channel\" at all".into(), String::new()] {
            run(&format!("SET LOCAL outbox.notify_channel = {}", quoted(&channel)));
            assert_eq!(one::<String>("current_setting('outbox.notify_channel')"), channel);
            enqueue(&[]);
        }
        for channel in ["x".repeat(64), "é".repeat(32), "x".repeat(10_000)] {
            let refusal = refused(&format!("SET LOCAL outbox.notify_channel = {}", quoted(&channel)));
            assert_eq!(refusal.sqlstate, "22023", "{refusal:?}");
            assert!(refusal.message.contains("outbox.notify_channel"), "{refusal:?}");
            assert!(refusal.detail.contains("63 bytes") && refusal.hint.contains("63 bytes"), "{refusal:?}");
        }
    }

    #[pg_test]
    fn unknown_settings_under_the_prefix_are_refused() {
        for name in ["outbox.max_attempt", "outbox.nothing"] {
            let refusal = refused(&format!("SET LOCAL {name} = '1'"));
            assert_eq!(refusal.sqlstate, "42602", "{refusal:?}");
            assert!(refusal.mentions("outbox"), "{refusal:?}");
        }
    }

    /// The status after a first failure, and after a first lease that expired.
    fn statuses_after_one_attempt() -> [String; 2] {
        let mut clock = Clock::stopped();
        let failed = only_event(State::Leased);
        let status: String = one(&format!("outbox_fail('{failed}', 'w', 'e')"));
        let expired = only_event(State::Leased);
        clock.advance("1 hour");
        claim("'w'");
        [status, one(&format!("status::text FROM outbox_event WHERE id = '{expired}'"))]
    }

    #[pg_test]
    fn max_attempts_is_read_by_failures_and_claims() {
        assert_eq!(statuses_after_one_attempt(), ["pending", "processing"]);
        run("SET LOCAL outbox.max_attempts = 1");
        assert_eq!(statuses_after_one_attempt(), ["dead", "dead"]);
        run("SET LOCAL outbox.max_attempts = 0");
        assert_eq!(statuses_after_one_attempt(), ["dead", "dead"]);
        run("SET LOCAL outbox.max_attempts = 2147483647");
        assert_eq!(statuses_after_one_attempt(), ["pending", "processing"]);
    }

    #[pg_test]
    fn settings_of_a_function_hold_for_what_it_calls() {
        run("CREATE FUNCTION pg_temp.give_up(event uuid) RETURNS text LANGUAGE sql
             SET outbox.max_attempts = 0 AS $$ SELECT public.outbox_fail(event, 'w', 'e') $$");
        let id = only_event(State::Leased);
        assert_eq!(one::<String>(&format!("pg_temp.give_up('{id}')")), "dead");
        assert_eq!(one::<String>("current_setting('outbox.max_attempts')"), "25");
    }
}
