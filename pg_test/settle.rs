//! `outbox_complete` and `outbox_fail`: who may settle an event, and what becomes of it.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const UNKNOWN: &str = "00000000-0000-7000-8000-00000000dead";

    fn complete(id: &str, rest: &str) -> String {
        format!("outbox_complete('{id}', {rest})")
    }

    fn fail(id: &str, rest: &str) -> String {
        format!("outbox_fail('{id}', {rest})")
    }

    /// Calls `outbox_fail` as the event's worker, and returns the new status.
    fn failed(id: &str, rest: &str) -> String {
        one(&fail(id, &format!("'w', {rest}")))
    }

    fn last_error_code(id: &str) -> String {
        one(&format!("last_error_code FROM outbox_event WHERE id = '{id}'"))
    }

    fn available_at(id: &str) -> String {
        columns(id)["available_at"].clone()
    }

    /// Checks that both ways to settle are refused for this reason, and leave the event as it is.
    fn assert_not_held(id: &str, worker: &str, attempt: &str, detail: &str) {
        let before = columns(id);
        let calls = [
            complete(id, &format!("'{worker}', {attempt}")),
            fail(id, &format!("'{worker}', 'e', attempt => {attempt}")),
        ];
        for call in calls {
            let refusal = assert_refused(&call, "55000", id);
            assert_eq!(refusal.message, format!("the lease on event {id} is not held"));
            assert_eq!(refusal.detail, detail, "{call}");
        }
        assert_eq!(columns(id), before);
    }

    #[pg_test]
    fn completing_ends_the_lease_and_changes_nothing_else() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        let before = columns(&id);
        let now = clock.advance("3 seconds");
        run(&format!("SELECT {}", complete(&id, "'w'")));
        let end = values([
            ("status", "completed"),
            ("completed_at", &now),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), end);
    }

    #[pg_test]
    fn completing_clears_the_error_of_an_earlier_attempt() {
        let id = only_event(State::Failed);
        claim("'w'");
        assert_eq!(last_error_code(&id), "trouble");
        run(&format!("SELECT {}", complete(&id, "'w', 2")));
        assert_eq!(columns(&id)["last_error_code"], "NULL");
    }

    #[pg_test]
    fn failing_brings_the_event_back_at_next_attempt_and_changes_nothing_else() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        let before = columns(&id);
        let now = clock.advance("3 seconds");
        assert_eq!(failed(&id, "'timeout', 5, '2031-01-01Z'"), "pending");
        let retry = values([
            ("status", "pending"),
            ("available_at", "2031-01-01T00:00:00+00:00"),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("last_error_code", "timeout"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), retry);
    }

    #[pg_test]
    fn failing_for_the_last_time_buries_the_event_and_keeps_its_available_at() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        let before = columns(&id);
        let now = clock.advance("3 seconds");
        assert_eq!(failed(&id, "'refused', 1, '2031-01-01Z'"), "dead");
        let death = values([
            ("status", "dead"),
            ("dead_at", &now),
            ("locked_at", "NULL"),
            ("locked_by", "NULL"),
            ("last_error_code", "refused"),
            ("updated_at", &now),
        ]);
        assert_eq!(changes(&before, &id), death);
    }

    #[pg_test]
    fn failing_is_death_once_the_counted_attempts_reach_max_attempts() {
        for (attempts, max_attempts, expected) in [
            (1, "0", "dead"),
            (1, "1", "dead"),
            (1, "2", "pending"),
            (3, "2", "dead"),
            (3, "3", "dead"),
            (3, "4", "pending"),
            (24, "NULL", "pending"),
            (25, "NULL", "dead"),
            (1000, "2147483647", "pending"),
        ] {
            let id = only_event(State::Leased);
            update(&id, &format!("attempt_count = {attempts}"));
            let status = failed(&id, &format!("'e', {max_attempts}"));
            assert_eq!(status, expected, "attempt {attempts} of {max_attempts}");
            assert_eq!(columns(&id)["status"], expected);
        }
    }

    #[pg_test]
    fn forgiven_attempts_do_not_count_toward_max_attempts_at_the_failure() {
        for (forgiven, expected) in [(0, "dead"), (7, "dead"), (8, "pending"), (10, "pending")] {
            let id = only_event(State::Leased);
            update(&id, &format!("attempt_count = 10, forgiven_attempts = {forgiven}"));
            assert_eq!(failed(&id, "'e', 3"), expected, "{forgiven} forgiven");
        }
    }

    #[pg_test]
    fn the_failure_takes_max_attempts_from_the_setting_unless_it_is_given() {
        for (setting, argument, expected) in [
            ("1", "NULL", "dead"),
            ("2", "NULL", "pending"),
            ("0", "NULL", "dead"),
            ("1", "2", "pending"),
            ("2", "1", "dead"),
        ] {
            run(&format!("SET LOCAL outbox.max_attempts = {setting}"));
            let id = only_event(State::Leased);
            let status = failed(&id, &format!("'e', {argument}"));
            assert_eq!(status, expected, "setting {setting}, argument {argument}");
        }
    }

    #[pg_test]
    fn a_negative_max_attempts_is_refused_at_the_failure() {
        let id = only_event(State::Leased);
        let before = columns(&id);
        for limit in ["-1", "-2147483648"] {
            let refusal = assert_refused(&fail(&id, &format!("'w', 'e', {limit}")), "22023", "max_attempts");
            assert_eq!(refusal.detail, format!("max_attempts is {limit}."));
        }
        assert_eq!(columns(&id), before);
    }

    #[pg_test]
    fn an_infinite_next_attempt_is_refused_also_when_the_event_would_die() {
        let id = only_event(State::Leased);
        let before = columns(&id);
        for moment in ["infinity", "-infinity"] {
            for max_attempts in ["9", "0"] {
                let call = fail(&id, &format!("'w', 'e', {max_attempts}, '{moment}'"));
                assert_refused(&call, "22023", "next_attempt");
            }
        }
        assert_eq!(columns(&id), before);
    }

    #[pg_test]
    fn any_finite_next_attempt_is_taken_as_it_is() {
        for (moment, due) in [
            ("290000-01-01T00:00:00+00:00", false),
            ("1970-01-01T00:00:00+00:00", true),
            ("2030-01-01T12:00:00+00:00", true),
            ("2030-01-01T12:00:00.000001+00:00", false),
        ] {
            let _clock = Clock::stopped();
            let id = only_event(State::Leased);
            failed(&id, &format!("'e', next_attempt => '{moment}'"));
            assert_eq!(available_at(&id), moment);
            assert_eq!(claim("'x'") == [id.as_str()], due, "{moment}");
        }
    }

    #[pg_test]
    fn a_next_attempt_that_is_left_out_lies_within_the_backoff() {
        let clock = Clock::stopped();
        let id = only_event(State::Leased);
        assert_eq!(failed(&id, "'e'"), "pending");
        let within = format!("available_at BETWEEN '{}' AND '{}'", clock.now(), clock.after("1 second"));
        assert!(holds(&format!("{within} FROM outbox_event WHERE id = '{id}'")));
    }

    #[pg_test]
    fn every_state_but_the_callers_own_lease_is_refused_and_detail_says_what_it_is() {
        for (state, detail) in [
            (State::NeverClaimed, "The event was never claimed."),
            (State::Failed, "The event is pending again: its attempt 1 has ended."),
            (State::Completed, "The event is already completed."),
            (State::Dead, "The event is dead."),
        ] {
            let id = only_event(state);
            for attempt in ["NULL", "0", "1", "2"] {
                assert_not_held(&id, "w", attempt, detail);
            }
        }
    }

    #[pg_test]
    fn a_lease_of_another_worker_is_refused_and_detail_names_it() {
        let id = only_event(State::Leased);
        for attempt in ["NULL", "1", "2"] {
            for worker in ["x", "W", "w ", "ww"] {
                assert_not_held(&id, worker, attempt, "The event is leased to worker \"w\" (attempt 1).");
            }
        }
    }

    #[pg_test]
    fn another_attempt_is_refused_and_detail_says_both() {
        let id = only_event(State::Leased);
        for attempt in ["0", "2", "-1", "2147483647"] {
            let detail = format!("The event is at attempt 1, not at attempt {attempt}.");
            assert_not_held(&id, "w", attempt, &detail);
        }
    }

    #[pg_test]
    fn the_very_attempt_or_none_is_taken() {
        for attempt in ["1", "NULL"] {
            let id = only_event(State::Leased);
            run(&format!("SELECT {}", complete(&id, &format!("'w', {attempt}"))));
            let id = only_event(State::Leased);
            failed(&id, &format!("'e', attempt => {attempt}"));
            assert_eq!(columns(&id)["status"], "pending");
        }
    }

    #[pg_test]
    fn a_worker_with_a_stable_name_cannot_settle_its_expired_attempt() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("1 hour");
        assert_eq!(claim("'w'"), [id.as_str()]);
        assert_not_held(&id, "w", "1", "The event is at attempt 2, not at attempt 1.");
        run(&format!("SELECT {}", complete(&id, "'w', 2")));
    }

    #[pg_test]
    fn a_lease_that_expired_but_was_not_taken_over_can_be_settled() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("1 year");
        run(&format!("SELECT {}", complete(&id, "'w', 1")));
    }

    #[pg_test]
    fn the_old_owner_is_refused_after_a_takeover_and_the_new_one_finishes() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("1 hour");
        assert_eq!(claim("'x'"), [id.as_str()]);
        assert_not_held(&id, "w", "1", "The event is leased to worker \"x\" (attempt 2).");
        run(&format!("SELECT {}", complete(&id, "'x', 2")));
    }

    #[pg_test]
    fn an_event_that_was_buried_by_a_claim_is_dead_to_its_worker() {
        let mut clock = Clock::stopped();
        let id = only_event(State::Leased);
        clock.advance("1 hour");
        assert!(claim("'x', max_attempts => 1").is_empty());
        assert_not_held(&id, "w", "1", "The event is dead.");
    }

    #[pg_test]
    fn an_event_that_was_brought_back_by_hand_is_pending_again() {
        let id = only_event(State::Dead);
        update(&id, "status = 'pending'");
        assert_not_held(&id, "w", "1", "The event is pending again: its attempt 1 has ended.");
    }

    #[pg_test]
    fn an_unknown_event_is_no_event() {
        only_event(State::Leased);
        for call in [complete(UNKNOWN, "'w'"), complete(UNKNOWN, "'w', 1"), fail(UNKNOWN, "'w', 'e'")] {
            let refusal = assert_refused(&call, "P0002", UNKNOWN);
            assert_eq!(refusal.message, format!("event {UNKNOWN} does not exist"));
            assert!(!refusal.detail.is_empty());
        }
    }

    #[pg_test]
    fn an_event_that_was_deleted_is_no_event() {
        let id = only_event(State::Leased);
        run("DELETE FROM outbox_event");
        assert_refused(&complete(&id, "'w'"), "P0002", &id);
        assert_refused(&fail(&id, "'w', 'e'"), "P0002", &id);
    }

    #[pg_test]
    fn null_for_a_required_argument_of_a_settlement_is_refused() {
        let id = only_event(State::Leased);
        let before = columns(&id);
        for (call, parameter) in [
            ("outbox_complete(NULL, 'w')".into(), "event_id"),
            (complete(&id, "NULL"), "worker_id"),
            ("outbox_fail(NULL, 'w', 'e')".into(), "event_id"),
            (fail(&id, "NULL, 'e'"), "worker_id"),
            (fail(&id, "'w', NULL"), "error_code"),
        ] {
            let refusal = assert_refused(&call, "22004", parameter);
            assert_eq!(refusal.message, format!("{parameter} must not be null"));
        }
        assert_eq!(columns(&id), before);
    }

    #[pg_test]
    fn a_workers_name_that_is_empty_or_too_long_is_refused_at_the_settlement() {
        let id = only_event(State::Leased);
        for worker in ["''", "repeat('w', 256)", "repeat('é', 128)"] {
            assert_refused(&complete(&id, worker), "22023", "worker_id");
            assert_refused(&fail(&id, &format!("{worker}, 'e'")), "22023", "worker_id");
        }
    }

    #[pg_test]
    fn a_worker_with_the_longest_name_settles() {
        for name in ["repeat('w', 255)", "repeat('é', 127) || 'w'"] {
            let id = only_event(State::NeverClaimed);
            assert_eq!(claim(name), [id.as_str()]);
            run(&format!("SELECT {}", complete(&id, name)));
        }
    }

    #[pg_test]
    fn an_empty_error_code_is_refused() {
        let id = only_event(State::Leased);
        let refusal = assert_refused(&fail(&id, "'w', ''"), "22023", "error_code");
        assert_eq!(refusal.detail, "error_code is empty.");
        assert_eq!(columns(&id)["status"], "processing");
    }

    #[pg_test]
    fn an_error_code_is_cut_to_1024_bytes_at_the_end_of_a_character() {
        for (given, kept) in [
            ("'x'", "'x'"),
            ("repeat('x', 1024)", "repeat('x', 1024)"),
            ("repeat('x', 1025)", "repeat('x', 1024)"),
            ("repeat('é', 512)", "repeat('é', 512)"),
            ("repeat('é', 513)", "repeat('é', 512)"),
            ("'x' || repeat('é', 512)", "'x' || repeat('é', 511)"),
            ("repeat('x', 1022) || '€'", "repeat('x', 1022)"),
            ("repeat('x', 1021) || '€'", "repeat('x', 1021) || '€'"),
            ("repeat('😀', 300)", "repeat('😀', 256)"),
            ("repeat('trace ', 200000)", "repeat('trace ', 170) || 'trac'"),
        ] {
            for max_attempts in [0, 9] {
                let id = only_event(State::Leased);
                failed(&id, &format!("{given}, {max_attempts}"));
                let same = format!("last_error_code = {kept} FROM outbox_event WHERE id = '{id}'");
                assert!(holds(&same), "{given}");
            }
        }
    }

    #[pg_test]
    fn a_failed_event_keeps_its_error_until_it_is_settled_again() {
        let id = only_event(State::Failed);
        claim("'w'");
        failed(&id, "'second trouble', next_attempt => '2000-01-01'");
        claim("'w'");
        assert_eq!(last_error_code(&id), "second trouble");
    }

    #[pg_test]
    fn an_event_lives_through_attempts_until_it_dies() {
        let id = only_event(State::NeverClaimed);
        for (attempt, expected) in [(1, "pending"), (2, "pending"), (3, "dead")] {
            assert_eq!(claim("'w'"), [id.as_str()], "attempt {attempt}");
            let rest = format!("'e', 3, '2000-01-01', {attempt}");
            assert_eq!(failed(&id, &rest), expected, "attempt {attempt}");
        }
        assert!(claim("'w'").is_empty());
    }

    #[pg_test]
    fn settlements_are_called_by_name_or_with_untyped_parameters() {
        let id = only_event(State::Leased);
        let call = format!("outbox_complete(event_id => '{id}', worker_id => 'w', attempt => 1)");
        run(&format!("SELECT {call}"));
        let id = only_event(State::Leased);
        run("PREPARE fail AS SELECT outbox_fail($1, $2, $3, $4, $5, $6)");
        run(&format!("EXECUTE fail('{id}', 'w', 'e', NULL, NULL, '1')"));
        let id = only_event(State::Leased);
        let call = format!(
            "outbox_fail(event_id => '{id}', worker_id => 'w', error_code => 'e', max_attempts => 0,
                         next_attempt => NULL, attempt => 1)"
        );
        assert_eq!(one::<String>(&call), "dead");
    }

    #[pg_test]
    fn completing_returns_void() {
        let id = only_event(State::Leased);
        assert_eq!(one::<String>(&format!("{}::text", complete(&id, "'w'"))), "");
    }

    #[pg_test]
    fn a_settlement_that_is_rolled_back_leaves_the_event_leased() {
        let id = only_event(State::Leased);
        let before = columns(&id);
        for call in [complete(&id, "'w'"), fail(&id, "'w', 'e'")] {
            run(&format!(
                "DO $$ BEGIN PERFORM {call}; RAISE EXCEPTION 'undo';
                 EXCEPTION WHEN raise_exception THEN END $$"
            ));
            assert_eq!(columns(&id), before);
        }
    }

    #[pg_test]
    fn a_refused_settlement_tells_no_payload_key_or_tenant() {
        let id = enqueue(&[
            ("tenant_id", "'7e000000-0000-4000-8000-00000000005e'"),
            ("aggregate_type", "'secret_type'"),
            ("event_type", "'secret_event'"),
            ("deduplication_key", "'secret_key of a settlement'"),
            ("payload", r#"'{"secret": 1}'"#),
        ]);
        let unclaimed = assert_refused(&complete(&id, "'w'"), "55000", &id);
        claim("'w'");
        let leased = assert_refused(&fail(&id, "'x', 'secret_code'"), "55000", &id);
        for refusal in [unclaimed, leased] {
            assert!(!refusal.mentions("secret") && !refusal.mentions("7e000000"), "{refusal:?}");
        }
    }
}
