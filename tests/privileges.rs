//! Who may do what: installation by an owner who is no superuser, PUBLIC, grants, row-level security.

use support::refusal::Refusal;
use support::story::live_through;
use support::{Client, Database, Event, Outbox, Sql, Uuid};

/// The functions of the extension that a role may execute.
fn executable(session: &mut Client, role: &str) -> Vec<String> {
    session.column(
        "SELECT p.proname::text
         FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
           AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox_ext')
           AND has_function_privilege($1::text, p.oid, 'EXECUTE')
         ORDER BY 1",
        &[&role],
    )
}

const GRANTS: &str = "
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO role_name;
    GRANT SELECT, INSERT, UPDATE ON outbox_event TO role_name";

fn grant(session: &mut Client, role: &str) {
    session.run(&GRANTS.replace("role_name", role));
}

#[test]
fn a_database_owner_who_is_no_superuser_installs_uses_and_owns_everything() {
    let (database, owner) = Database::owned_by_a_role();
    let mut session = database.session_as(&owner);
    session.run("CREATE EXTENSION outbox_ext");
    live_through(&mut session, "");
    let others: Vec<String> = session.column(
        "WITH owned AS (
             SELECT 'pg_proc'::regclass AS class, oid, proowner AS owner FROM pg_proc
             UNION ALL SELECT 'pg_class'::regclass, oid, relowner FROM pg_class
             UNION ALL SELECT 'pg_type'::regclass, oid, typowner FROM pg_type
         )
         SELECT pg_describe_object(class, oid, 0)
         FROM owned JOIN pg_depend AS d ON d.classid = class AND d.objid = oid AND d.deptype = 'e'
         WHERE d.refclassid = 'pg_extension'::regclass AND owner <> $1::text::regrole
           AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox_ext')",
        &[&owner],
    );
    assert_eq!(others, [""; 0]);
    session.run("DROP EXTENSION outbox_ext");
}

#[test]
fn public_may_execute_nothing_that_writes() {
    let database = Database::with_extension();
    let role = database.role("anyone");
    let mut session = database.session();
    assert_eq!(
        executable(&mut session, &role),
        ["outbox_aggregate_id", "outbox_event_id", "outbox_payload_hash"]
    );

    let mut anyone = database.session_as(&role);
    for call in [
        "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1')",
        "SELECT * FROM outbox_enqueue_batch('[]')",
        "SELECT * FROM outbox_claim_batch('w')",
        "SELECT outbox_complete(gen_random_uuid(), 'w')",
        "SELECT outbox_fail(gen_random_uuid(), 'w', 'oops')",
        "SELECT outbox_replay()",
        "SELECT outbox_purge('1 day')",
        "SELECT * FROM outbox_stats",
        "SELECT * FROM outbox_event",
        "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', gen_random_uuid(), 'order.created', '1')",
    ] {
        assert_eq!(anyone.refused(call, &[]).sqlstate, "42501", "{call}");
    }
    assert_eq!(anyone.value::<String>("SELECT outbox_payload_hash('{}')", &[]).len(), 64);
}

#[test]
fn installed_by_an_owner_public_may_execute_nothing_that_writes_either() {
    let (database, owner) = Database::owned_by_a_role();
    let role = database.role("anyone");
    let mut session = database.session_as(&owner);
    session.run("CREATE EXTENSION outbox_ext");
    assert_eq!(
        executable(&mut session, &role),
        ["outbox_aggregate_id", "outbox_event_id", "outbox_payload_hash"]
    );
}

#[test]
fn execute_alone_is_not_enough_since_the_functions_run_with_their_callers_rights() {
    let database = Database::with_extension();
    let role = database.role("app");
    database.session().run(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role}"));
    let mut app = database.session_as(&role);
    assert_eq!(Refusal::expect(app.try_enqueue(&Event::default()), "no right to insert").sqlstate, "42501");
    assert_eq!(Refusal::expect(app.try_claim("w", 1, "1 hour"), "no right to read").sqlstate, "42501");
    let definers: i64 =
        app.value("SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox%' AND prosecdef", &[]);
    assert_eq!(definers, 0);
}

#[test]
fn a_role_with_execute_and_rights_on_the_table_does_everything() {
    let database = Database::with_extension();
    let role = database.role("app");
    grant(&mut database.session(), &role);
    live_through(&mut database.session_as(&role), "");
}

const TENANT_POLICY: &str = "
    ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
    ALTER TABLE outbox_event FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant ON outbox_event USING (tenant_id = current_setting('app.tenant')::uuid)";

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);

fn act_as(session: &mut Client, tenant: Uuid) {
    session.run(&format!("SET app.tenant = '{tenant}'"));
}

fn event_of(tenant: Uuid) -> Event<'static> {
    Event { tenant: Some(tenant), ..Event::keyed("k") }
}

/// What a session under the tenant policy can and cannot do.
fn tenants_are_kept_apart(session: &mut Client) {
    act_as(session, A);
    let of_a = session.enqueue(&event_of(A));
    assert_eq!(session.enqueue(&event_of(A)), of_a);
    let foreign = Refusal::expect(session.try_enqueue(&event_of(B)), "another tenant's event");
    assert_eq!(foreign.sqlstate, "42501");

    act_as(session, B);
    let of_b = session.enqueue(&event_of(B));
    assert_ne!(of_a, of_b);
    assert_eq!(support::outbox::ids(&session.claim("w", 10)), [of_b]);
    assert_eq!(session.refused_complete(of_a, "w", None).sqlstate, "P0002");
    session.complete(of_b, "w");

    act_as(session, A);
    assert_eq!(session.refused_complete(of_b, "w", None).sqlstate, "P0002");
    assert_eq!(session.claim_one("w").id, of_a);
    assert_eq!(session.fail(of_a, "w", 1), "dead");
}

#[test]
fn row_level_security_by_tenant_holds_for_a_role_of_the_application() {
    let database = Database::with_extension();
    let role = database.role("app");
    let mut session = database.session();
    grant(&mut session, &role);
    session.run(TENANT_POLICY);
    tenants_are_kept_apart(&mut database.session_as(&role));
}

#[test]
fn forced_row_level_security_holds_for_the_tables_owner() {
    let (database, owner) = Database::owned_by_a_role();
    let mut session = database.session_as(&owner);
    session.run("CREATE EXTENSION outbox_ext");
    session.run(TENANT_POLICY);
    tenants_are_kept_apart(&mut session);
}

#[test]
fn row_level_security_holds_in_a_session_whose_plans_were_made_by_a_superuser() {
    let database = Database::with_extension();
    let role = database.role("app");
    let mut session = database.session();
    grant(&mut session, &role);
    live_through(&mut session, "");
    session.run(TENANT_POLICY);
    live_through(&mut session, "");
    session.run("TRUNCATE outbox_event");
    session.run(&format!("SET ROLE {role}"));
    tenants_are_kept_apart(&mut session);
    session.run("RESET ROLE; TRUNCATE outbox_event");
    live_through(&mut session, "");
}

#[test]
fn a_key_that_row_level_security_hides_is_refused_without_naming_its_event() {
    let database = Database::with_extension();
    let role = database.role("app");
    let mut session = database.session();
    grant(&mut session, &role);
    session.run(
        "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON outbox_event USING (aggregate_type::text <> 'secret')",
    );
    let hidden = session.enqueue(&Event { aggregate_type: "secret", ..Event::keyed("k") });
    let mut app = database.session_as(&role);
    let refusal = Refusal::expect(app.try_enqueue(&Event::keyed("k")), "a hidden key");
    assert_eq!(refusal.sqlstate, "42501");
    assert!(!refusal.mentions(&hidden.to_string()) && !refusal.mentions("secret"), "{refusal:?}");
    assert!(refusal.hint.is_some());
    app.enqueue(&Event::keyed("another"));
}

const ORDERS: &str = "
    CREATE TABLE orders (id uuid PRIMARY KEY);
    CREATE FUNCTION order_created() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM outbox_enqueue(NULL, 'order', NEW.id, 'order.created', NULL, to_jsonb(NEW));
        RETURN NULL;
    END $$;
    CREATE TRIGGER created AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_created();
    GRANT INSERT ON orders TO role_name";

#[test]
fn a_role_with_business_grants_only_needs_a_trigger_that_runs_as_its_definer() {
    let database = Database::with_extension();
    let role = database.role("clerk");
    let mut session = database.session();
    session.run(&ORDERS.replace("role_name", &role));
    let mut clerk = database.session_as(&role);
    let insert = "INSERT INTO orders VALUES (gen_random_uuid())";
    let refusal = clerk.refused(insert, &[]);
    assert_eq!(refusal.sqlstate, "42501");
    assert!(refusal.mentions("outbox_enqueue"), "{refusal:?}");
    session.run("ALTER FUNCTION order_created SECURITY DEFINER SET search_path = public, pg_temp");
    clerk.run(insert);
    assert_eq!(session.count("pending"), 1);
}

#[test]
fn every_object_of_the_extension_has_a_comment() {
    let database = Database::with_extension();
    let without: Vec<String> = database.session().column(
        "WITH member AS (
             SELECT classid, objid FROM pg_depend
             WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
               AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'outbox_ext')
         ), object (classid, objid, subid) AS (
             SELECT classid, objid, 0 FROM member
             UNION ALL SELECT 'pg_class'::regclass, attrelid, attnum
                 FROM pg_attribute JOIN member ON classid = 'pg_class'::regclass AND objid = attrelid
                 WHERE attnum > 0 AND NOT attisdropped
             UNION ALL SELECT 'pg_class'::regclass, indexrelid, 0
                 FROM pg_index JOIN member ON classid = 'pg_class'::regclass AND objid = indrelid
             UNION ALL SELECT 'pg_trigger'::regclass, pg_trigger.oid, 0
                 FROM pg_trigger JOIN member ON classid = 'pg_class'::regclass AND objid = tgrelid
                 WHERE NOT tgisinternal
             UNION ALL SELECT 'pg_extension'::regclass, oid, 0 FROM pg_extension WHERE extname = 'outbox_ext'
         )
         SELECT pg_describe_object(classid, objid, subid)
         FROM object LEFT JOIN pg_description AS d
              ON d.classoid = object.classid AND d.objoid = object.objid AND d.objsubid = object.subid
         WHERE d.description IS NULL",
        &[],
    );
    assert_eq!(without, [""; 0]);
}

#[test]
fn a_limit_for_payloads_that_is_set_before_the_library_is_there_counts_for_superusers_only() {
    let database = Database::with_extension();
    let role = database.role("app");
    let mut session = database.session();
    grant(&mut session, &role);
    // The library comes with the first call, and looks then at who has set what.
    session.run(&format!("ALTER ROLE {role} SET outbox.max_payload_bytes = '1kB'"));
    let mut app = database.session_as(&role);
    app.run("SET outbox.max_payload_bytes = 0");
    let large = format!("\"{}\"", "x".repeat(2_000));
    app.enqueue(&Event::default());
    let shown: String = app.value("SELECT current_setting('outbox.max_payload_bytes')", &[]);
    assert_ne!(shown, "0");
    assert_eq!(
        Refusal::expect(app.try_enqueue(&Event::carrying(&large)), "a large payload").sqlstate,
        "54000"
    );
}
