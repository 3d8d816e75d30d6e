//! Rows that are written by hand: each becomes a sound event, or an error.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    /// Checks that a hand is refused with 22023, that the message names the column, and HINT helps.
    fn assert_unsound(statement: &str, column: &str) -> Refusal {
        let refusal = refused(statement);
        assert_eq!(refusal.sqlstate, "22023", "{statement}: {refusal:?}");
        assert_eq!(refusal.message, format!("invalid value for {column}"), "{statement}");
        assert!(!refusal.detail.is_empty() && !refusal.hint.is_empty(), "{statement}: {refusal:?}");
        refusal
    }

    fn assert_insert_unsound(columns: &[(&str, &str)], column: &str) -> Refusal {
        assert_unsound(&insert_statement(columns), column)
    }

    fn assert_update_unsound(id: &str, assignments: &str, column: &str) {
        let before = columns(id);
        assert_unsound(&update_statement(id, assignments), column);
        assert_eq!(columns(id), before);
    }

    fn assert_code(statement: &str, sqlstate: &str) {
        let refusal = refused(statement);
        assert_eq!(refusal.sqlstate, sqlstate, "{statement}: {refusal:?}");
    }

    /// What a hand that makes these assignments changes in the event.
    fn changed(id: &str, assignments: &str) -> Columns {
        let before = columns(id);
        update(id, assignments);
        changes(&before, id)
    }

    const LEASE: [(&str, &str); 3] =
        [("status", "'processing'"), ("locked_by", "'h'"), ("locked_at", "'2020-01-01Z'")];
    const END: &str = "2020-01-01T00:00:00+00:00";

    #[pg_test]
    fn a_plain_insert_becomes_a_pending_event_with_the_hash_and_is_claimable() {
        let id = insert(&[]);
        let event = columns(&id);
        let hash: String = one(r#"outbox_payload_hash('{"number": 1}')"#);
        for (column, value) in [
            ("status", "pending"),
            ("attempt_count", "0"),
            ("forgiven_attempts", "0"),
            ("payload_hash", &hash),
            ("locked_by", "NULL"),
            ("tenant_id", "NULL"),
        ] {
            assert_eq!(event[column], value, "{column}");
        }
        assert!(holds(
            "bool_and(available_at <= clock_timestamp() AND substr(id::text, 15, 1) = '7')
                       FROM outbox_event"
        ));
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn a_copy_becomes_events_too() {
        run(r#"COPY outbox_event (aggregate_type, aggregate_id, event_type, payload) FROM PROGRAM
               'printf "order\\t0dd00000-0000-4000-8000-00000000000%d\\torder.created\\t[%d]\\n" 1 1 2 2'"#);
        assert!(holds(
            "count(*) = 2 AND bool_and(payload_hash = outbox_payload_hash(payload)) FROM outbox_event"
        ));
        assert_eq!(claim("'w'").len(), 2);
    }

    #[pg_test]
    fn rows_in_every_state_can_be_restored_as_they_were() {
        run("CREATE TEMP TABLE dumped (LIKE outbox_event)");
        for state in State::ALL {
            only_event(state);
            run("INSERT INTO dumped SELECT * FROM outbox_event");
        }
        run("DELETE FROM outbox_event; INSERT INTO outbox_event SELECT * FROM dumped");
        assert_eq!(events(), 5);
        let restored = "SELECT to_jsonb(e) FROM outbox_event e";
        assert_eq!(texts(&format!("{restored} EXCEPT SELECT to_jsonb(d) FROM dumped d")), [""; 0]);
    }

    #[pg_test]
    fn a_copied_row_that_is_unsound_is_refused() {
        run("CREATE TEMP TABLE dumped (LIKE outbox_event)");
        only_event(State::Leased);
        run("INSERT INTO dumped SELECT * FROM outbox_event; UPDATE dumped SET locked_by = NULL");
        assert_unsound("INSERT INTO outbox_event SELECT * FROM dumped", "locked_by");
    }

    #[pg_test]
    fn a_missing_value_is_refused_by_the_table() {
        for column in ["aggregate_type", "aggregate_id", "event_type", "payload"] {
            assert_code(&insert_statement(&[(column, "NULL")]), "23502");
        }
        for column in
            ["id", "status", "attempt_count", "forgiven_attempts", "available_at", "created_at", "updated_at"]
        {
            assert_code(&insert_statement(&[(column, "NULL")]), "23502");
            let id = insert(&[]);
            assert_code(&update_statement(&id, &format!("{column} = NULL")), "23502");
        }
    }

    #[pg_test]
    fn names_keys_and_statuses_keep_their_domains() {
        for (column, value) in [
            ("status", "'done'"),
            ("status", "''"),
            ("status", "'PENDING'"),
            ("aggregate_type", "''"),
            ("aggregate_type", "repeat('é', 128)"),
            ("event_type", "''"),
            ("event_type", "repeat('x', 256)"),
            ("deduplication_key", "''"),
            ("deduplication_key", "repeat('x', 1025)"),
        ] {
            assert_code(&insert_statement(&[(column, value)]), "23514");
            let id = insert(&[]);
            assert_code(&update_statement(&id, &format!("{column} = {value}")), "23514");
        }
        insert(&[("aggregate_type", "repeat('x', 255)"), ("event_type", "repeat('é', 127)")]);
    }

    #[pg_test]
    fn a_key_that_is_taken_is_refused_by_the_index_also_for_the_null_tenant() {
        let key = quoted(&format!("guard {}", one::<i32>("pg_backend_pid()")));
        insert(&[("deduplication_key", &key)]);
        assert_code(&insert_statement(&[("deduplication_key", &key)]), "23505");
    }

    #[pg_test]
    fn the_all_zero_tenant_is_refused() {
        let zero = "'00000000-0000-0000-0000-000000000000'";
        assert_insert_unsound(&[("tenant_id", zero)], "tenant_id");
        assert_update_unsound(&insert(&[]), &format!("tenant_id = {zero}"), "tenant_id");
    }

    #[pg_test]
    fn infinite_moments_are_refused_in_every_column() {
        for column in ["available_at", "locked_at", "completed_at", "dead_at", "created_at", "updated_at"] {
            for moment in ["'infinity'", "'-infinity'"] {
                assert_insert_unsound(&[(column, moment)], column);
                assert_update_unsound(&insert(&[]), &format!("{column} = {moment}"), column);
            }
        }
    }

    #[pg_test]
    fn headers_that_are_no_object_are_refused() {
        for headers in ["'[]'", "'1'", "'null'", "'\"a\"'"] {
            assert_insert_unsound(&[("headers", headers)], "headers");
            let id = insert(&[("headers", "'{}'")]);
            assert_update_unsound(&id, &format!("headers = {headers}"), "headers");
        }
        let id = insert(&[("headers", "'{\"a\": 1}'")]);
        assert_eq!(changed(&id, "headers = NULL"), values([("headers", "NULL")]));
    }

    #[pg_test]
    fn a_hash_that_is_given_is_kept_if_it_looks_like_one() {
        let hash = "f".repeat(64);
        let id = insert(&[("payload_hash", &quoted(&hash))]);
        assert_eq!(columns(&id)["payload_hash"], hash);
    }

    #[pg_test]
    fn a_hash_that_cannot_be_one_is_refused() {
        for hash in
            ["''", "'abc'", "repeat('f', 63)", "repeat('f', 65)", "repeat('F', 64)", "repeat('g', 64)"]
        {
            let refusal = assert_insert_unsound(&[("payload_hash", hash)], "payload_hash");
            assert!(!refusal.mentions("ffff"), "{refusal:?}");
        }
    }

    #[pg_test]
    fn the_hash_follows_a_payload_that_is_changed() {
        let id = insert(&[]);
        let hash: String = one("outbox_payload_hash('[2]')");
        assert_eq!(changed(&id, "payload = '[2]'"), values([("payload", "[2]"), ("payload_hash", &hash)]));
        let given = format!("payload = '[2]', payload_hash = '{}'", "f".repeat(64));
        assert_eq!(changed(&id, &given), values([]));
    }

    #[pg_test]
    fn a_hash_that_is_changed_without_its_payload_is_computed_again() {
        let id = insert(&[]);
        for hash in ["NULL", "''", "repeat('f', 64)"] {
            assert_eq!(changed(&id, &format!("payload_hash = {hash}")), values([]), "{hash}");
        }
    }

    #[pg_test]
    fn the_hash_follows_a_toasted_payload() {
        let id =
            insert(&[("payload", "(SELECT jsonb_agg(md5(n::text)) FROM generate_series(1, 5000) AS n)")]);
        update(&id, "payload = payload || '[1]'");
        assert!(holds("bool_and(payload_hash = outbox_payload_hash(payload)) FROM outbox_event"));
        update(&id, "updated_at = clock_timestamp()");
        assert!(holds("bool_and(payload_hash = outbox_payload_hash(payload)) FROM outbox_event"));
    }

    #[pg_test]
    fn an_end_that_is_left_out_is_now() {
        let clock = Clock::stopped();
        for (status, column) in [("completed", "completed_at"), ("dead", "dead_at")] {
            let id = insert(&[("status", &quoted(status))]);
            assert_eq!(columns(&id)[column], clock.now(), "{status}");
        }
    }

    #[pg_test]
    fn an_end_that_is_given_is_kept() {
        for (status, column) in [("completed", "completed_at"), ("dead", "dead_at")] {
            let id = insert(&[("status", &quoted(status)), (column, &quoted(END))]);
            assert_eq!(columns(&id)[column], END, "{status}");
        }
    }

    #[pg_test]
    fn what_contradicts_the_status_is_refused_at_the_insert() {
        for (status, contradictions) in [
            ("pending", &["locked_at", "locked_by", "completed_at", "dead_at"][..]),
            ("processing", &["completed_at", "dead_at"]),
            ("completed", &["locked_at", "locked_by", "dead_at"]),
            ("dead", &["locked_at", "locked_by", "completed_at"]),
        ] {
            for column in contradictions {
                let status = quoted(status);
                let own =
                    if status == "'processing'" { &LEASE[..] } else { &[("status", status.as_str())][..] };
                let value = if *column == "locked_by" { "'h'" } else { "'2020-01-01Z'" };
                let refusal = assert_insert_unsound(&instead(own, &[(column, value)]), column);
                assert!(refusal.detail.contains("but status is"), "{refusal:?}");
            }
        }
    }

    #[pg_test]
    fn what_contradicts_the_status_is_refused_at_the_update() {
        for (state, contradictions) in [
            (State::NeverClaimed, &["locked_at", "locked_by", "completed_at", "dead_at"][..]),
            (State::Leased, &["completed_at", "dead_at"]),
            (State::Completed, &["locked_at", "locked_by", "dead_at"]),
            (State::Dead, &["locked_at", "locked_by", "completed_at"]),
        ] {
            let id = only_event(state);
            for column in contradictions {
                let value = if *column == "locked_by" { "'h'" } else { "'2020-01-01Z'" };
                assert_update_unsound(&id, &format!("{column} = {value}"), column);
            }
        }
    }

    #[pg_test]
    fn processing_without_a_lease_is_refused() {
        for missing in ["locked_by", "locked_at"] {
            assert_insert_unsound(&instead(&LEASE, &[(missing, "NULL")]), missing);
            assert_update_unsound(&only_event(State::Leased), &format!("{missing} = NULL"), missing);
        }
        for state in [State::NeverClaimed, State::Failed, State::Completed, State::Dead] {
            let id = only_event(state);
            assert_update_unsound(&id, "status = 'processing'", "locked_by");
            assert_update_unsound(&id, "status = 'processing', locked_by = 'h'", "locked_at");
        }
    }

    #[pg_test]
    fn a_lease_has_an_owner_of_1_to_255_bytes() {
        for owner in ["''", "repeat('h', 256)", "repeat('é', 128)"] {
            assert_insert_unsound(&instead(&LEASE, &[("locked_by", owner)]), "locked_by");
        }
        insert(&instead(&LEASE, &[("locked_by", "repeat('h', 255)")]));
    }

    #[pg_test]
    fn a_lease_from_the_future_begins_now_and_its_event_is_due() {
        let clock = Clock::stopped();
        let future = [("locked_at", "'2040-01-01Z'"), ("available_at", "'2040-01-01Z'")];
        let id = insert(&instead(&LEASE, &future));
        let event = columns(&id);
        assert_eq!((&event["locked_at"], &event["available_at"]), (&clock.now(), &clock.now()));
    }

    #[pg_test]
    fn a_lease_taken_by_hand_expires_like_any_other() {
        let mut clock = Clock::stopped();
        let id = insert(&[("available_at", "'2040-01-01Z'")]);
        update(&id, "status = 'processing', locked_by = 'h', locked_at = '2050-01-01Z'");
        assert!(claim("'w'").is_empty());
        clock.advance("1 hour");
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn a_lease_taken_by_hand_is_an_attempt_of_its_own() {
        let attempts = |id: &str| columns(id)["attempt_count"].clone();
        let fresh = insert(&LEASE);
        assert_eq!(attempts(&fresh), "1");
        let restored = insert(&instead(&LEASE, &[("attempt_count", "7")]));
        assert_eq!(attempts(&restored), "7");

        let id = only_event(State::NeverClaimed);
        let lease = "status = 'processing', locked_by = 'h', locked_at = '2020-01-01Z'";
        update(&id, lease);
        assert_eq!(attempts(&id), "1");
        update(&id, "locked_by = 'other'");
        assert_eq!(attempts(&id), "2");
        update(&id, "locked_by = 'third', attempt_count = 9");
        assert_eq!(attempts(&id), "9");
    }

    #[pg_test]
    fn a_lease_that_is_extended_by_hand_stays_the_same_attempt() {
        let id = insert(&LEASE);
        let extended = values([("locked_at", "2021-01-01T00:00:00+00:00")]);
        assert_eq!(changed(&id, "locked_at = '2021-01-01Z'"), extended);
    }

    #[pg_test]
    fn a_lease_that_a_hand_takes_fences_the_old_owner_off() {
        let id = only_event(State::Leased);
        update(&id, "locked_by = 'h'");
        assert_eq!(refused(&format!("SELECT outbox_complete('{id}', 'w')")).sqlstate, "55000");
        run(&format!("SELECT outbox_complete('{id}', 'h', 2)"));
    }

    #[pg_test]
    fn setting_pending_brings_every_event_back_and_it_is_claimable() {
        for state in State::ALL {
            let id = only_event(state);
            update(&id, "status = 'pending'");
            let event = columns(&id);
            for column in ["locked_at", "locked_by", "completed_at", "dead_at"] {
                assert_eq!(event[column], "NULL", "{state:?}: {column}");
            }
            assert_eq!(claim("'w'"), [id.as_str()], "{state:?}");
        }
    }

    #[pg_test]
    fn an_event_that_is_brought_back_from_its_end_has_a_fresh_budget() {
        for (state, forgiven) in
            [(State::Completed, "1"), (State::Dead, "1"), (State::Leased, "0"), (State::Failed, "0")]
        {
            let id = only_event(state);
            update(&id, "status = 'pending'");
            assert_eq!(columns(&id)["forgiven_attempts"], forgiven, "{state:?}");
        }
    }

    #[pg_test]
    fn one_failure_does_not_kill_an_event_that_was_brought_back() {
        let id = only_event(State::Dead);
        update(&id, "status = 'pending'");
        assert_eq!(claim("'w'"), [id.as_str()]);
        assert_eq!(one::<String>(&format!("outbox_fail('{id}', 'w', 'e', 2)")), "pending");
    }

    #[pg_test]
    fn a_hand_that_sets_the_budget_has_its_way() {
        let id = only_event(State::Dead);
        update(&id, "attempt_count = 5, forgiven_attempts = 2");
        update(&id, "status = 'pending', forgiven_attempts = 3");
        assert_eq!(columns(&id)["forgiven_attempts"], "3");
    }

    #[pg_test]
    fn setting_completed_or_dead_ends_every_event_now() {
        let mut clock = Clock::stopped();
        for state in State::ALL {
            for (status, end, other) in
                [("completed", "completed_at", "dead_at"), ("dead", "dead_at", "completed_at")]
            {
                let id = only_event(state);
                let before = columns(&id);
                let now = clock.advance("1 second");
                update(&id, &format!("status = '{status}'"));
                let event = columns(&id);
                let kept = before["status"] == status;
                assert_eq!(event[end], if kept { before[end].clone() } else { now }, "{state:?}");
                for column in [other, "locked_at", "locked_by"] {
                    assert_eq!(event[column], "NULL", "{state:?} to {status}: {column}");
                }
                assert!(claim("'w'").is_empty());
            }
        }
    }

    #[pg_test]
    fn an_end_that_is_cleared_without_the_status_is_now() {
        let mut clock = Clock::stopped();
        for (state, column) in [(State::Completed, "completed_at"), (State::Dead, "dead_at")] {
            let id = only_event(state);
            let now = clock.advance("1 second");
            assert_eq!(changed(&id, &format!("{column} = NULL")), values([(column, &now)]));
        }
    }

    #[pg_test]
    fn attempts_are_counted_from_0_to_a_thousand_million() {
        for count in ["-1", "1000000001", "2147483647", "-2147483648"] {
            assert_insert_unsound(&[("attempt_count", count)], "attempt_count");
            assert_update_unsound(&insert(&[]), &format!("attempt_count = {count}"), "attempt_count");
        }
        insert(&[("attempt_count", "1000000000")]);
    }

    #[pg_test]
    fn attempts_never_decrease() {
        let id = insert(&[("attempt_count", "5")]);
        for count in [0, 4] {
            assert_update_unsound(&id, &format!("attempt_count = {count}"), "attempt_count");
        }
        assert_eq!(changed(&id, "attempt_count = 6"), values([("attempt_count", "6")]));
    }

    #[pg_test]
    fn forgiven_attempts_lie_between_0_and_the_attempts() {
        for forgiven in ["-1", "6", "2147483647"] {
            let columns = [("attempt_count", "5"), ("forgiven_attempts", forgiven)];
            assert_insert_unsound(&columns, "forgiven_attempts");
            let id = insert(&[("attempt_count", "5")]);
            assert_update_unsound(&id, &format!("forgiven_attempts = {forgiven}"), "forgiven_attempts");
        }
        insert(&[("attempt_count", "5"), ("forgiven_attempts", "5")]);
    }

    #[pg_test]
    fn a_hand_reschedules_a_pending_event_and_nothing_else_changes() {
        let id = insert(&[]);
        assert_eq!(
            changed(&id, "available_at = '2041-01-01Z'"),
            values([("available_at", "2041-01-01T00:00:00+00:00")])
        );
        assert!(claim("'w'").is_empty());
        update(&id, "available_at = '2001-01-01Z'");
        assert_eq!(claim("'w'"), [id]);
    }

    #[pg_test]
    fn an_upsert_is_guarded_too() {
        let id = insert(&[]);
        let again = insert_statement(&[("id", &quoted(&id))]);
        let upsert = format!("{again} ON CONFLICT (id) DO UPDATE SET status = 'dead', locked_by = 'h'");
        assert_unsound(&upsert, "locked_by");
    }

    #[pg_test]
    fn a_users_trigger_before_the_guard_has_what_it_writes_guarded() {
        run("CREATE FUNCTION pg_temp.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 NEW.payload := '[\"changed\"]'; NEW.headers := '[]'; RETURN NEW;
             END $$;
             CREATE TRIGGER meddle BEFORE INSERT ON outbox_event
                 FOR EACH ROW EXECUTE FUNCTION pg_temp.meddle()");
        assert_insert_unsound(&[], "headers");
    }

    #[pg_test]
    fn a_refusal_tells_no_payload_key_or_tenant() {
        let refusal = assert_insert_unsound(
            &[
                ("tenant_id", "'7e000000-0000-4000-8000-00000000005e'"),
                ("payload", "'\"secret\"'"),
                ("deduplication_key", "'secret'"),
                ("headers", "'[\"secret\"]'"),
            ],
            "headers",
        );
        assert!(!refusal.mentions("secret") && !refusal.mentions("7e000000"), "{refusal:?}");
    }

    #[pg_test]
    fn the_guard_is_no_function_to_call() {
        assert_refused("outbox_event_guard()", "39P01", "outbox_event_guard");
    }

    #[pg_test]
    fn the_guard_refuses_to_be_another_kind_of_trigger() {
        run("CREATE TEMP TABLE other (n integer);
             INSERT INTO other VALUES (1);
             CREATE TRIGGER after_row AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION outbox_event_guard();
             CREATE TRIGGER statement BEFORE UPDATE ON other EXECUTE FUNCTION outbox_event_guard();
             CREATE TRIGGER before_row BEFORE DELETE ON other FOR EACH ROW EXECUTE FUNCTION outbox_event_guard()");
        for statement in ["INSERT INTO other VALUES (2)", "UPDATE other SET n = 3", "DELETE FROM other"] {
            assert_code(statement, "39P01");
        }
    }

    #[pg_test]
    fn the_guard_refuses_to_guard_another_table() {
        for columns in [2, 20] {
            let columns: String = one(&format!(
                "string_agg(format('c%s integer', n), ',') FROM generate_series(1, {columns}) AS n"
            ));
            run(&format!(
                "CREATE TEMP TABLE other ({columns});
                 CREATE TRIGGER guard BEFORE INSERT ON other
                     FOR EACH ROW EXECUTE FUNCTION outbox_event_guard()"
            ));
            assert_code("INSERT INTO other (c2) VALUES (1)", "39P01");
            run("DROP TABLE other");
        }
    }
}
