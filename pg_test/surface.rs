//! What the extension installs: functions, table, view, indexes, domains, comments and privileges.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::support::*;
    use crate::row::Column;
    use pgrx::prelude::*;

    const OF_THE_EXTENSION: &str = "EXISTS (
        SELECT FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND d.refclassid = 'pg_extension'::regclass
        WHERE d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND e.extname = 'outbox_ext'
    ) AND p.pronamespace <> 'tests'::regnamespace";

    /// A text about each of the extension's functions, in the order of their names.
    fn functions(expression: &str) -> Vec<String> {
        texts(&format!(
            "SELECT p.proname || ': ' || {expression} FROM pg_proc p WHERE {OF_THE_EXTENSION} ORDER BY p.proname"
        ))
    }

    #[pg_test]
    fn functions_have_the_parameters_of_the_contract() {
        assert_eq!(
            functions("pg_get_function_arguments(p.oid)"),
            [
                "outbox_aggregate_id: aggregate_type text, key text",
                "outbox_capture: ",
                "outbox_claim_batch: worker_id text, batch_size integer DEFAULT 100, \
                 lock_timeout interval DEFAULT '00:05:00'::interval, max_attempts integer DEFAULT NULL::integer, \
                 only_event_types text[] DEFAULT NULL::text[], only_tenant uuid DEFAULT NULL::uuid, \
                 ordered boolean DEFAULT false",
                "outbox_complete: event_id uuid, worker_id text, attempt integer DEFAULT NULL::integer",
                "outbox_complete_batch: event_ids uuid[], worker_id text, attempts integer[] DEFAULT NULL::integer[]",
                "outbox_enqueue: tenant_id uuid DEFAULT NULL::uuid, aggregate_type text DEFAULT NULL::text, \
                 aggregate_id uuid DEFAULT NULL::uuid, event_type text DEFAULT NULL::text, \
                 deduplication_key text DEFAULT NULL::text, payload jsonb DEFAULT NULL::jsonb, \
                 available_at timestamp with time zone DEFAULT NULL::timestamp with time zone, \
                 headers jsonb DEFAULT NULL::jsonb",
                "outbox_enqueue_batch: events jsonb",
                "outbox_event_guard: ",
                "outbox_event_id: ",
                "outbox_extend_batch: event_ids uuid[], worker_id text, attempts integer[] DEFAULT NULL::integer[]",
                "outbox_fail: event_id uuid, worker_id text, error_code text, \
                 max_attempts integer DEFAULT NULL::integer, \
                 next_attempt timestamp with time zone DEFAULT NULL::timestamp with time zone, \
                 attempt integer DEFAULT NULL::integer",
                "outbox_fail_batch: event_ids uuid[], worker_id text, error_code text, \
                 max_attempts integer DEFAULT NULL::integer, \
                 next_attempt timestamp with time zone DEFAULT NULL::timestamp with time zone, \
                 attempts integer[] DEFAULT NULL::integer[]",
                "outbox_grant: grantee regrole, duty text",
                "outbox_payload_hash: payload jsonb",
                "outbox_purge: older_than interval, max_events integer DEFAULT 10000, \
                 statuses text[] DEFAULT '{completed}'::text[]",
                "outbox_release_batch: event_ids uuid[], worker_id text, \
                 available_at timestamp with time zone DEFAULT NULL::timestamp with time zone, \
                 attempts integer[] DEFAULT NULL::integer[]",
                "outbox_replay: event_ids uuid[] DEFAULT NULL::uuid[], event_type text DEFAULT NULL::text, \
                 tenant_id uuid DEFAULT NULL::uuid, max_events integer DEFAULT 1000",
            ]
        );
    }

    #[pg_test]
    fn functions_return_what_the_contract_says() {
        assert_eq!(
            functions("pg_get_function_result(p.oid)"),
            [
                "outbox_aggregate_id: uuid",
                "outbox_capture: trigger",
                "outbox_claim_batch: TABLE(id uuid, tenant_id uuid, aggregate_type text, aggregate_id uuid, \
                 event_type text, deduplication_key text, payload jsonb, attempt_count integer, headers jsonb, \
                 created_at timestamp with time zone, locked_at timestamp with time zone)",
                "outbox_complete: void",
                "outbox_complete_batch: SETOF uuid",
                "outbox_enqueue: uuid",
                "outbox_enqueue_batch: TABLE(ordinal integer, id uuid, deduplicated boolean)",
                "outbox_event_guard: trigger",
                "outbox_event_id: uuid",
                "outbox_extend_batch: SETOF uuid",
                "outbox_fail: text",
                "outbox_fail_batch: TABLE(id uuid, status text)",
                "outbox_grant: void",
                "outbox_payload_hash: text",
                "outbox_purge: bigint",
                "outbox_release_batch: SETOF uuid",
                "outbox_replay: bigint",
            ]
        );
    }

    #[pg_test]
    fn functions_are_volatile_and_parallel_unsafe_but_those_that_compute() {
        let volatile = "v, parallel u";
        assert_eq!(
            functions("concat(p.provolatile, ', parallel ', p.proparallel)"),
            [
                "outbox_aggregate_id: i, parallel s".into(),
                format!("outbox_capture: {volatile}"),
                format!("outbox_claim_batch: {volatile}"),
                format!("outbox_complete: {volatile}"),
                format!("outbox_complete_batch: {volatile}"),
                format!("outbox_enqueue: {volatile}"),
                format!("outbox_enqueue_batch: {volatile}"),
                format!("outbox_event_guard: {volatile}"),
                format!("outbox_event_id: {volatile}"),
                format!("outbox_extend_batch: {volatile}"),
                format!("outbox_fail: {volatile}"),
                format!("outbox_fail_batch: {volatile}"),
                format!("outbox_grant: {volatile}"),
                "outbox_payload_hash: i, parallel s".into(),
                format!("outbox_purge: {volatile}"),
                format!("outbox_release_batch: {volatile}"),
                format!("outbox_replay: {volatile}"),
            ]
        );
    }

    #[pg_test]
    fn no_function_is_strict_overloaded_or_runs_with_its_owners_rights() {
        assert!(holds(&format!(
            "bool_and(NOT (p.proisstrict AND p.pronargs > 0) AND NOT p.prosecdef AND p.proconfig IS NULL)
                 AND count(*) = count(DISTINCT p.proname)
             FROM pg_proc p WHERE {OF_THE_EXTENSION}"
        )));
    }

    #[pg_test]
    fn the_table_has_the_columns_of_the_contract() {
        let columns = texts(
            "SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod),
                              CASE WHEN attnotnull THEN 'not null' END, pg_get_expr(adbin, adrelid))
             FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
             WHERE attrelid = 'outbox_event'::regclass AND attnum > 0 ORDER BY attnum",
        );
        assert_eq!(
            columns,
            [
                "id uuid not null outbox_event_id()",
                "tenant_id uuid",
                "aggregate_type outbox_name not null",
                "aggregate_id uuid not null",
                "event_type outbox_name not null",
                "deduplication_key outbox_deduplication_key",
                "payload jsonb not null",
                "headers jsonb",
                "payload_hash text not null",
                "status outbox_status not null 'pending'::text",
                "attempt_count integer not null 0",
                "forgiven_attempts integer not null 0",
                "available_at timestamp with time zone not null clock_timestamp()",
                "locked_at timestamp with time zone",
                "locked_by text",
                "last_error_code text",
                "completed_at timestamp with time zone",
                "dead_at timestamp with time zone",
                "created_at timestamp with time zone not null clock_timestamp()",
                "updated_at timestamp with time zone not null clock_timestamp()",
                "claimed_in_order boolean",
            ]
        );
    }

    #[pg_test]
    fn the_guard_knows_the_columns_by_their_numbers() {
        for (column, name) in [
            (Column::TenantId, "tenant_id"),
            (Column::EventType, "event_type"),
            (Column::Payload, "payload"),
            (Column::Headers, "headers"),
            (Column::PayloadHash, "payload_hash"),
            (Column::Status, "status"),
            (Column::AttemptCount, "attempt_count"),
            (Column::ForgivenAttempts, "forgiven_attempts"),
            (Column::AvailableAt, "available_at"),
            (Column::LockedAt, "locked_at"),
            (Column::LockedBy, "locked_by"),
            (Column::CompletedAt, "completed_at"),
            (Column::DeadAt, "dead_at"),
            (Column::CreatedAt, "created_at"),
            (Column::UpdatedAt, "updated_at"),
            (Column::ClaimedInOrder, "claimed_in_order"),
        ] {
            let number = column as i32;
            let found: String = one(&format!(
                "attname::text FROM pg_attribute WHERE attrelid = 'outbox_event'::regclass AND attnum = {number}"
            ));
            assert_eq!(found, name, "column {number}");
        }
    }

    #[pg_test]
    fn the_domains_keep_their_rules() {
        let rules = texts(
            "SELECT concat_ws(' ', typname, format_type(typbasetype, typtypmod), pg_get_constraintdef(c.oid))
             FROM pg_type t JOIN pg_constraint c ON c.contypid = t.oid
             WHERE typname LIKE 'outbox%' AND contype = 'c' ORDER BY typname",
        );
        let statuses = "ARRAY['pending'::text, 'processing'::text, 'completed'::text, 'dead'::text]";
        assert_eq!(
            rules,
            [
                "outbox_deduplication_key text CHECK (((octet_length(VALUE) >= 1) AND (octet_length(VALUE) <= 1024)))"
                    .to_owned(),
                "outbox_name text CHECK (((octet_length(VALUE) >= 1) AND (octet_length(VALUE) <= 255)))".into(),
                format!("outbox_status text CHECK ((VALUE = ANY ({statuses})))"),
            ]
        );
    }

    #[pg_test]
    fn the_indexes_mention_no_column_that_a_claim_of_a_pending_event_changes() {
        let indexes = texts(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'outbox_event'::regclass
             ORDER BY indexrelid::regclass::text",
        );
        assert_eq!(
            indexes,
            [
                "CREATE INDEX outbox_event_aggregate_idx ON public.outbox_event USING btree \
                 (aggregate_id, aggregate_type, created_at, id) \
                 WHERE ((completed_at IS NULL) AND (dead_at IS NULL))",
                "CREATE INDEX outbox_event_claim_idx ON public.outbox_event USING btree \
                 (available_at, created_at, id) WHERE ((completed_at IS NULL) AND (dead_at IS NULL))",
                "CREATE INDEX outbox_event_completed_idx ON public.outbox_event USING btree \
                 (completed_at, id) WHERE (completed_at IS NOT NULL)",
                "CREATE INDEX outbox_event_dead_idx ON public.outbox_event USING btree \
                 (dead_at, id, event_type, tenant_id) WHERE (dead_at IS NOT NULL)",
                "CREATE UNIQUE INDEX outbox_event_deduplication_idx ON public.outbox_event USING btree \
                 (tenant_id, event_type, deduplication_key) NULLS NOT DISTINCT \
                 WHERE (deduplication_key IS NOT NULL)",
                "CREATE UNIQUE INDEX outbox_event_in_flight_idx ON public.outbox_event USING btree \
                 (aggregate_id DESC, aggregate_type, tenant_id) NULLS NOT DISTINCT \
                 WHERE (claimed_in_order AND (completed_at IS NULL) AND (dead_at IS NULL))",
                "CREATE UNIQUE INDEX outbox_event_pkey ON public.outbox_event USING btree (id)",
            ]
        );
    }

    #[pg_test]
    fn the_table_is_set_up_as_a_queue() {
        let options = texts(
            "SELECT option FROM pg_class, unnest(reloptions) AS option WHERE oid = 'outbox_event'::regclass
             ORDER BY option COLLATE \"C\"",
        );
        assert_eq!(
            options,
            [
                "autovacuum_analyze_scale_factor=0.05",
                "autovacuum_analyze_threshold=5000",
                "autovacuum_vacuum_cost_delay=1",
                "autovacuum_vacuum_insert_scale_factor=0.05",
                "autovacuum_vacuum_insert_threshold=20000",
                "autovacuum_vacuum_scale_factor=0.01",
                "autovacuum_vacuum_threshold=5000",
                "fillfactor=45",
            ]
        );
    }

    #[pg_test]
    fn the_table_has_no_check_and_one_trigger_which_comes_last() {
        let constraints = "SELECT concat_ws(' ', conname, contype) FROM pg_constraint
                           WHERE conrelid = 'outbox_event'::regclass AND contype <> 'n'";
        assert_eq!(texts(constraints), ["outbox_event_pkey p"]);
        let triggers =
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'outbox_event'::regclass";
        assert_eq!(
            texts(triggers),
            ["CREATE TRIGGER zz_outbox_event_guard BEFORE INSERT OR UPDATE ON public.outbox_event \
              FOR EACH ROW EXECUTE FUNCTION outbox_event_guard()"]
        );
    }

    #[pg_test]
    fn the_table_is_dumped_with_all_its_rows() {
        assert!(holds(
            "extconfig = ARRAY['outbox_event'::regclass::oid] AND extcondition = ARRAY['']
                       FROM pg_extension WHERE extname = 'outbox_ext'"
        ));
    }

    #[pg_test]
    fn the_extension_is_trusted_not_relocatable_and_of_the_crates_version() {
        let control = "SELECT concat_ws(' ', version, trusted, superuser, relocatable)
                       FROM pg_available_extension_versions WHERE name = 'outbox_ext' AND installed";
        assert_eq!(texts(control), [format!("{} t t f", env!("CARGO_PKG_VERSION"))]);
    }

    #[pg_test]
    fn every_member_of_the_extension_has_a_comment() {
        let silent = texts(
            "SELECT pg_describe_object(d.classid, d.objid, 0)
             FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
             WHERE e.extname = 'outbox_ext' AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
               AND NOT (d.classid = 'pg_namespace'::regclass AND d.objid = 'tests'::regnamespace)
               AND NOT EXISTS (SELECT FROM pg_proc p WHERE d.classid = 'pg_proc'::regclass
                               AND p.oid = d.objid AND p.pronamespace = 'tests'::regnamespace)
               -- From PostgreSQL 18 on, the types of rows and arrays are members too.
               AND NOT EXISTS (SELECT FROM pg_type t WHERE d.classid = 'pg_type'::regclass
                               AND t.oid = d.objid AND (typtype = 'c' OR typcategory = 'A'))
               AND obj_description(d.objid, d.classid::regclass::text) IS NULL",
        );
        assert_eq!(silent, [""; 0]);
        assert!(holds(
            "obj_description(oid, 'pg_extension') <> '' FROM pg_extension WHERE extname = 'outbox_ext'"
        ));
    }

    #[pg_test]
    fn every_column_index_and_trigger_has_a_comment() {
        let silent = texts(
            "SELECT attname::text FROM pg_attribute
             WHERE attrelid IN ('outbox_event'::regclass, 'outbox_stats'::regclass) AND attnum > 0 AND NOT attisdropped
               AND col_description(attrelid, attnum) IS NULL
             UNION ALL SELECT indexrelid::regclass::text FROM pg_index
             WHERE indrelid = 'outbox_event'::regclass AND obj_description(indexrelid, 'pg_class') IS NULL
             UNION ALL SELECT tgname::text FROM pg_trigger
             WHERE tgrelid = 'outbox_event'::regclass AND obj_description(oid, 'pg_trigger') IS NULL",
        );
        assert_eq!(silent, [""; 0]);
    }

    #[pg_test]
    fn everything_belongs_to_the_extensions_owner() {
        let others = texts(&format!(
            "WITH owner AS (SELECT extowner FROM pg_extension WHERE extname = 'outbox_ext')
             SELECT p.proname::text FROM pg_proc p, owner WHERE {OF_THE_EXTENSION} AND proowner <> extowner
             UNION ALL SELECT relname::text FROM pg_class, owner
             WHERE relname LIKE 'outbox%' AND relowner <> extowner
             UNION ALL SELECT typname::text FROM pg_type, owner
             WHERE typname LIKE 'outbox%' AND typowner <> extowner"
        ));
        assert_eq!(others, [""; 0]);
    }

    #[pg_test]
    fn public_may_call_nothing_that_writes() {
        let callable = texts(&format!(
            "SELECT p.proname::text FROM pg_proc p
             WHERE {OF_THE_EXTENSION} AND has_function_privilege('public', p.oid, 'EXECUTE') ORDER BY 1"
        ));
        assert_eq!(callable, ["outbox_aggregate_id", "outbox_event_id", "outbox_payload_hash"]);
    }

    #[pg_test]
    fn public_may_do_nothing_with_the_table() {
        let any = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER";
        for relation in ["outbox_event", "outbox_stats"] {
            assert!(
                holds(&format!("NOT has_table_privilege('public', '{relation}', '{any}')")),
                "{relation}"
            );
        }
    }

    #[pg_test]
    fn the_view_has_the_columns_of_the_contract_and_its_readers_rights() {
        let columns = texts(
            "SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod)) FROM pg_attribute
             WHERE attrelid = 'outbox_stats'::regclass AND attnum > 0 ORDER BY attnum",
        );
        assert_eq!(
            columns,
            [
                "event_type text",
                "ready bigint",
                "scheduled bigint",
                "processing bigint",
                "dead bigint",
                "oldest_ready_age interval",
                "oldest_lease_age interval",
            ]
        );
        assert!(holds("reloptions = '{security_invoker=true}' FROM pg_class WHERE relname = 'outbox_stats'"));
    }

    /// The calls that write, of an event that is not there.
    const WRITERS: &[(&str, &str)] = &[
        ("outbox_enqueue", "NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1'"),
        (
            "outbox_enqueue_batch",
            r#"'[{"aggregate_type": "order", "aggregate_id": "0dd00000-0000-4000-8000-000000000001",
                  "event_type": "order.created", "payload": 1}]'"#,
        ),
        ("outbox_claim_batch", "'w'"),
        ("outbox_complete", "gen_random_uuid(), 'w'"),
        ("outbox_complete_batch", "ARRAY[gen_random_uuid()], 'w'"),
        ("outbox_extend_batch", "ARRAY[gen_random_uuid()], 'w'"),
        ("outbox_fail", "gen_random_uuid(), 'w', 'e'"),
        ("outbox_fail_batch", "ARRAY[gen_random_uuid()], 'w', 'e'"),
        ("outbox_release_batch", "ARRAY[gen_random_uuid()], 'w'"),
        ("outbox_replay", ""),
        ("outbox_purge", "'1 day'"),
    ];

    #[pg_test]
    fn a_role_without_grants_is_refused_by_every_function_that_writes() {
        run("CREATE ROLE outbox_test_nobody; SET LOCAL ROLE outbox_test_nobody");
        for (function, arguments) in WRITERS {
            let refusal = refused(&format!("SELECT {function}({arguments})"));
            assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
            assert!(refusal.message.contains(function), "{refusal:?}");
        }
        run("SELECT outbox_payload_hash('1')");
    }

    #[pg_test]
    fn a_role_with_the_function_alone_is_refused_by_the_table() {
        run("CREATE ROLE outbox_test_caller");
        for (function, arguments) in WRITERS {
            run(&format!("GRANT EXECUTE ON FUNCTION {function} TO outbox_test_caller"));
            run("SET LOCAL ROLE outbox_test_caller");
            let refusal = refused(&format!("SELECT {function}({arguments})"));
            assert_eq!(refusal.sqlstate, "42501", "{refusal:?}");
            assert!(refusal.message.contains("outbox_event"), "{refusal:?}");
            run("RESET ROLE");
        }
    }
}
