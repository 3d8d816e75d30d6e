//! `outbox_grant`: its arguments, and who may call it. What each duty can do is in tests/grants.rs.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use pgrx::prelude::*;

    const DUTIES: [&str; 3] = ["producer", "worker", "operator"];

    /// Whether a role has a privilege on a column of the table.
    fn may(role: &str, privilege: &str, column: &str) -> bool {
        holds(&format!("has_column_privilege('{role}', 'outbox_event', '{column}', '{privilege}')"))
    }

    #[pg_test]
    fn grant_refuses_null_for_each_argument() {
        assert_refused("outbox_grant(NULL, 'worker')", "22004", "grantee");
        assert_refused("outbox_grant(current_user::regrole, NULL)", "22004", "duty");
    }

    #[pg_test]
    fn grant_refuses_an_unknown_duty_and_grants_nothing() {
        run("CREATE ROLE outbox_test_grantee");
        for duty in ["", "Producer", "producer ", "workers", "admin", "public", "producer, worker"] {
            let call = format!("outbox_grant('outbox_test_grantee', {})", quoted(duty));
            let refusal = assert_refused(&call, "22023", "duty");
            assert_eq!(refusal.hint, "Pass producer, worker or operator.");
        }
        assert!(!may("outbox_test_grantee", "SELECT", "id"));
    }

    #[pg_test]
    fn grant_refuses_a_role_that_does_not_exist() {
        for grantee in ["4294967294::oid::regrole", "0::oid::regrole", "'-'::regrole"] {
            let refusal = assert_refused(&format!("outbox_grant({grantee}, 'worker')"), "42704", "grantee");
            assert!(refusal.detail.starts_with("There is no role with the oid"), "{refusal:?}");
        }
        // PostgreSQL's own: the text names no role.
        for name in ["outbox_test_nobody", "public", "PUBLIC"] {
            let refusal = refused(&format!("SELECT outbox_grant({}, 'worker')", quoted(name)));
            assert_eq!(refusal.sqlstate, "42704", "{name}: {refusal:?}");
        }
    }

    #[pg_test]
    fn roles_with_odd_names_are_granted_to() {
        for name in
            ["Odd Role", "o'dd", "o\"dd", "select", "user", "é; DROP TABLE outbox_event; --", "%I", "$1"]
        {
            let identifier = format!("\"{}\"", name.replace('"', "\"\""));
            run(&format!("CREATE ROLE {identifier}"));
            for duty in DUTIES {
                run(&format!("SELECT outbox_grant({}, '{duty}')", quoted(&identifier)));
            }
            let granted = format!("has_table_privilege({}, 'outbox_event', 'DELETE')", quoted(name));
            assert!(holds(&granted), "{name}");
        }
    }

    #[pg_test]
    fn granting_again_changes_nothing() {
        run("CREATE ROLE outbox_test_again");
        let acl = || {
            texts(
                "SELECT concat(relacl, (SELECT string_agg(concat(attname, attacl), ' ' ORDER BY attnum)
                                        FROM pg_attribute WHERE attrelid = pg_class.oid))
                 FROM pg_class WHERE oid = 'outbox_event'::regclass
                 UNION ALL (SELECT concat(proname, proacl) FROM pg_proc WHERE proname LIKE 'outbox%' ORDER BY 1)",
            )
        };
        for duty in DUTIES {
            run(&format!("SELECT outbox_grant('outbox_test_again', '{duty}')"));
        }
        let before = acl();
        for duty in DUTIES {
            run(&format!("SELECT outbox_grant('outbox_test_again', '{duty}')"));
        }
        assert_eq!(acl(), before);
    }

    #[pg_test]
    fn a_producer_reads_and_changes_no_payload_and_a_worker_changes_none() {
        run("CREATE ROLE outbox_test_producer; CREATE ROLE outbox_test_worker;
             SELECT outbox_grant('outbox_test_producer', 'producer'), outbox_grant('outbox_test_worker', 'worker')");
        for column in ["payload", "headers"] {
            for privilege in ["SELECT", "UPDATE", "REFERENCES"] {
                assert!(!may("outbox_test_producer", privilege, column), "{privilege} of {column}");
            }
            for privilege in ["INSERT", "UPDATE", "REFERENCES"] {
                assert!(!may("outbox_test_worker", privilege, column), "{privilege} of {column}");
            }
        }
    }

    #[pg_test]
    fn every_function_of_the_extension_that_writes_belongs_to_a_duty() {
        run("CREATE ROLE outbox_test_all");
        for duty in DUTIES {
            run(&format!("SELECT outbox_grant('outbox_test_all', '{duty}')"));
        }
        let left_out = texts(
            "SELECT proname::text FROM pg_proc JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = pg_proc.oid
             WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox_ext')
               AND pronamespace <> 'tests'::regnamespace
               AND NOT has_function_privilege('outbox_test_all', pg_proc.oid, 'EXECUTE') ORDER BY 1",
        );
        // The trigger's function is called by nobody, and granting is the owner's.
        assert_eq!(left_out, ["outbox_event_guard", "outbox_grant"]);
    }

    #[pg_test]
    fn all_columns_of_an_events_life_are_the_workers() {
        run("CREATE ROLE outbox_test_life; SELECT outbox_grant('outbox_test_life', 'worker')");
        let fixed = texts(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'outbox_event'::regclass AND attnum > 0
             AND NOT has_column_privilege('outbox_test_life', attrelid, attnum, 'UPDATE') ORDER BY attnum",
        );
        let expected = [
            "id",
            "tenant_id",
            "aggregate_type",
            "aggregate_id",
            "event_type",
            "deduplication_key",
            "payload",
            "headers",
            "payload_hash",
            "created_at",
        ];
        assert_eq!(fixed, expected);
    }

    #[pg_test]
    fn a_caller_without_the_right_to_grant_is_refused_also_where_postgresql_only_warns() {
        run("CREATE ROLE outbox_test_caller; CREATE ROLE outbox_test_target;
             GRANT EXECUTE ON FUNCTION outbox_grant TO outbox_test_caller;
             SET LOCAL ROLE outbox_test_caller");
        for duty in DUTIES {
            assert_refused(
                &format!("outbox_grant('outbox_test_target', '{duty}')"),
                "42501",
                "no right to grant",
            );
        }
        run("RESET ROLE");
        // With rights of its own, but not that of handing them on, PostgreSQL would say no more than WARNING.
        for duty in DUTIES {
            run(&format!("SELECT outbox_grant('outbox_test_caller', '{duty}')"));
        }
        run("SET LOCAL ROLE outbox_test_caller");
        for duty in DUTIES {
            let call = format!("outbox_grant('outbox_test_target', '{duty}')");
            let refusal = assert_refused(&call, "42501", "no right to grant");
            assert!(refusal.detail.contains("outbox"), "{refusal:?}");
        }
        run("RESET ROLE");
        assert!(!may("outbox_test_target", "SELECT", "id"));
    }

    #[pg_test]
    fn a_caller_who_may_grant_some_of_it_is_refused_and_grants_nothing() {
        run("CREATE ROLE outbox_test_some; CREATE ROLE outbox_test_other;
             GRANT EXECUTE ON FUNCTION outbox_grant TO outbox_test_some;
             GRANT EXECUTE ON FUNCTION outbox_replay, outbox_purge TO outbox_test_some WITH GRANT OPTION;
             GRANT SELECT, UPDATE, DELETE ON outbox_event TO outbox_test_some WITH GRANT OPTION;
             GRANT SELECT ON outbox_stats TO outbox_test_some WITH GRANT OPTION;
             REVOKE GRANT OPTION FOR DELETE ON outbox_event FROM outbox_test_some;
             SET LOCAL ROLE outbox_test_some");
        let refusal =
            assert_refused("outbox_grant('outbox_test_other', 'operator')", "42501", "no right to grant");
        assert!(refusal.detail.contains("DELETE on outbox_event"), "{refusal:?}");
        run("RESET ROLE");
        assert!(!may("outbox_test_other", "SELECT", "id"));
        run("GRANT DELETE ON outbox_event TO outbox_test_some WITH GRANT OPTION; SET LOCAL ROLE outbox_test_some;
             SELECT outbox_grant('outbox_test_other', 'operator'); RESET ROLE");
        assert!(may("outbox_test_other", "SELECT", "payload"));
    }
}
