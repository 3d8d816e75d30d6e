//! Row-level security by tenant, as examples/row-level-security.sql sets it up: no tenant reads, claims, settles
//! or learns of another's events, before a dump and after its restore.

use std::path::Path;
use support::backup::Backup;
use support::plan::buffers;
use support::refusal::Refusal;
use support::server::{program, succeed};
use support::{Client, Database, Sql, Uuid};

const A: Uuid = Uuid::from_u128(0x7e00_0000_0000_4000_8000_0000_0000_000a);
const B: Uuid = Uuid::from_u128(0x7e00_0000_0000_4000_8000_0000_0000_000b);

const NONE: [Uuid; 0] = [];

/// Runs the script that the documentation tells of.
fn secure(dsn: &str, all_tenants: Option<&str>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/row-level-security.sql");
    let mut psql = program("psql");
    psql.args(["-X", "-q", "-v", "schema=app", "-d", dsn, "-f"]).arg(script);
    if let Some(role) = all_tenants {
        psql.args(["-v", &format!("all_tenants={role}")]);
    }
    succeed(&mut psql);
}

/// A database with the extension in schema `app`, secured, and a role for each duty; and one that works and
/// operates for all tenants.
struct Platform {
    database: Database,
    roles: Roles,
}

struct Roles {
    producer: String,
    worker: String,
    operator: String,
    dispatcher: String,
}

impl Platform {
    fn new() -> Self {
        let database = Database::with_extension_in("app");
        let role = |name| database.role(name);
        let roles = Roles {
            producer: role("producer"),
            worker: role("worker"),
            operator: role("operator"),
            dispatcher: role("dispatcher"),
        };
        let mut session = database.session();
        for (role, duty) in [
            (&roles.producer, "producer"),
            (&roles.worker, "worker"),
            (&roles.operator, "operator"),
            (&roles.dispatcher, "producer"),
            (&roles.dispatcher, "worker"),
            (&roles.dispatcher, "operator"),
        ] {
            session.run(&format!("SELECT app.outbox_grant('{role}', '{duty}')"));
        }
        secure(&database.dsn(), Some(&roles.dispatcher));
        Self { database, roles }
    }
}

/// A session of a role that works for a tenant.
fn session(database: &Database, role: &str, tenant: Option<Uuid>) -> Client {
    let mut session = database.session_as(role);
    session.run("SET search_path = ''");
    act_for(&mut session, tenant);
    session
}

fn act_for(session: &mut Client, tenant: Option<Uuid>) {
    session.run(&format!("SET app.tenant_id = '{}'", tenant.map(|id| id.to_string()).unwrap_or_default()));
}

fn enqueue(session: &mut Client, tenant: Option<Uuid>, key: Option<&str>) -> Result<Uuid, postgres::Error> {
    session
        .query_one(
            "SELECT app.outbox_enqueue($1, 'order', $2, $3, $4, '{\"secret\": 1}')",
            &[&tenant, &Uuid::from_u128(1), &event_type(tenant), &key],
        )
        .map(|row| row.get(0))
}

/// A type of its own for each tenant, to be seen in the numbers.
fn event_type(tenant: Option<Uuid>) -> String {
    tenant.map_or("of none".to_owned(), |tenant| format!("of {tenant}"))
}

fn refusal<T: std::fmt::Debug>(result: Result<T, postgres::Error>) -> Refusal {
    Refusal::expect(result, "another tenant's event")
}

fn claim(session: &mut Client, more: &str) -> Vec<Uuid> {
    session.column(&format!("SELECT id FROM app.outbox_claim_batch('w', 100{more})"), &[])
}

/// All rows of the table as the superuser sees them.
fn everything(database: &Database) -> Vec<String> {
    database.session().column("SELECT event::text FROM app.outbox_event AS event ORDER BY id", &[])
}

fn delete_everything(database: &Database) {
    database.session().run("DELETE FROM app.outbox_event");
}

/// Three events of each tenant, the third of which is dead, and one of no tenant; the ids of A's and B's.
fn two_tenants(database: &Database, roles: &Roles) -> (Vec<Uuid>, Vec<Uuid>) {
    delete_everything(database);
    let events_of = |tenant| {
        let mut producer = session(database, &roles.producer, Some(tenant));
        let mut worker = session(database, &roles.worker, Some(tenant));
        let dead = enqueue(&mut producer, Some(tenant), None).expect("an event of its own");
        assert_eq!(claim(&mut worker, ""), [dead]);
        worker.execute("SELECT app.outbox_fail($1, 'w', 'e', 0)", &[&dead]).expect("it is leased");
        let first = enqueue(&mut producer, Some(tenant), Some("key")).expect("an event of its own");
        let second = enqueue(&mut producer, Some(tenant), None).expect("an event of its own");
        vec![first, second, dead]
    };
    let tenants = (events_of(A), events_of(B));
    enqueue(&mut session(database, &roles.dispatcher, None), None, None).expect("an event of no tenant");
    tenants
}

/// All that is promised of tenants.
fn tenants_are_kept_apart(database: &Database, roles: &Roles) {
    a_tenant_reads_its_own_events_only(database, roles);
    a_tenant_enqueues_its_own_events_only(database, roles);
    a_tenant_claims_its_own_events_only(database, roles);
    a_tenant_settles_its_own_events_only(database, roles);
    a_tenant_operates_on_its_own_events_only(database, roles);
    one_role_serves_all_tenants(database, roles);
}

fn a_tenant_reads_its_own_events_only(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    for role in [&roles.producer, &roles.worker, &roles.operator] {
        for (tenant, own) in [(Some(A), &of_a[..]), (Some(B), &of_b), (None, &[])] {
            let mut session = session(database, role, tenant);
            let mut seen: Vec<Uuid> = session.column("SELECT id FROM app.outbox_event", &[]);
            let mut own = own.to_vec();
            seen.sort();
            own.sort();
            assert_eq!(seen, own);
        }
    }
    // A session that has never heard of the setting, and one in which it has ended with a transaction.
    let mut session = database.session_as(&roles.worker);
    let count = "SELECT count(*) FROM app.outbox_event";
    assert_eq!(session.value::<i64>(count, &[]), 0);
    session.run(&format!("BEGIN; SET LOCAL app.tenant_id = '{A}'"));
    assert_eq!(session.value::<i64>(count, &[]), 3);
    session.run("COMMIT");
    assert_eq!(session.value::<i64>(count, &[]), 0);
    assert_eq!(session.column::<Uuid>("SELECT id FROM app.outbox_claim_batch('w')", &[]), NONE);
}

fn a_tenant_enqueues_its_own_events_only(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    let mut producer = session(database, &roles.producer, Some(A));
    let before = everything(database);
    // A key is each tenant's own: that of B's event, and B's event itself, cannot be met.
    assert_eq!(enqueue(&mut producer, Some(A), Some("key")).expect("A's own event"), of_a[0]);
    for (tenant, key) in [(Some(B), Some("key")), (Some(B), Some("new")), (Some(B), None), (None, None)] {
        let refusal = refusal(enqueue(&mut producer, tenant, key));
        assert_eq!(refusal.sqlstate, "42501");
        assert!(!refusal.mentions(&of_b[0].to_string()) && !refusal.mentions("secret"), "{refusal:?}");
    }
    let batch = |tenants: &[Uuid]| {
        let elements: Vec<String> = tenants
            .iter()
            .map(|tenant| {
                format!(
                    r#"{{"tenant_id": "{tenant}", "aggregate_type": "order", "aggregate_id": "{}",
                         "event_type": "{}", "deduplication_key": "key", "payload": {{"secret": 1}}}}"#,
                    Uuid::from_u128(1),
                    event_type(Some(*tenant))
                )
            })
            .collect();
        format!("SELECT id FROM app.outbox_enqueue_batch('[{}]')", elements.join(","))
    };
    assert_eq!(producer.column::<Uuid>(&batch(&[A, A]), &[]), [of_a[0], of_a[0]]);
    for tenants in [&[B][..], &[A, B]] {
        let refusal = producer.refused(&batch(tenants), &[]);
        assert_eq!(refusal.sqlstate, "42501");
        assert!(!refusal.mentions(&of_b[0].to_string()) && !refusal.mentions("secret"), "{refusal:?}");
    }
    assert_eq!(everything(database), before);
    act_for(&mut producer, None);
    assert_eq!(refusal(enqueue(&mut producer, Some(A), None)).sqlstate, "42501");
}

fn a_tenant_claims_its_own_events_only(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    let mut worker = session(database, &roles.worker, Some(A));
    assert_eq!(claim(&mut worker, &format!(", only_tenant => '{B}'")), NONE);
    assert_eq!(
        claim(&mut worker, &format!(", only_event_types => '{{{}}}'", quoted(&event_type(Some(B))))),
        NONE
    );
    assert_eq!(claim(&mut worker, ", ordered => true"), of_a[..1]);
    assert_eq!(claim(&mut worker, ""), of_a[1..2]);
    // Not the cursor of A's claims, which would have passed over B's earlier events.
    for _ in 0..3 {
        assert_eq!(claim(&mut worker, ""), NONE);
    }
    act_for(&mut worker, Some(B));
    assert_eq!(claim(&mut worker, ""), of_b[..2]);
    // Of an aggregate that both have, each has its own order.
    two_tenants_with_one_aggregate(database, roles);
    let (of_a, of_b) = two_tenants(database, roles);
    for (tenant, own) in [(A, &of_a), (B, &of_b)] {
        act_for(&mut worker, Some(tenant));
        assert_eq!(claim(&mut worker, ""), own[..2]);
    }
    // Leases expire for their tenant alone, and are not buried by another's claim.
    act_for(&mut worker, Some(A));
    assert_eq!(claim(&mut worker, ", '1 microsecond', 100"), of_a[..2]);
    claim(&mut worker, ", '1 microsecond', 0");
    let alive: Vec<Uuid> = database.session().column(
        "SELECT id FROM app.outbox_event WHERE status = 'processing' AND attempt_count = 1 ORDER BY id",
        &[],
    );
    let mut expected = of_b[..2].to_vec();
    expected.sort();
    assert_eq!(alive, expected);
}

fn two_tenants_with_one_aggregate(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    let (mut own, mut other) =
        (session(database, &roles.worker, Some(A)), session(database, &roles.worker, Some(B)));
    for place in [0, 1] {
        assert_eq!(claim(&mut own, ", ordered => true"), of_a[place..=place]);
        assert_eq!(claim(&mut own, ", ordered => true"), NONE);
        assert_eq!(claim(&mut other, ", ordered => true"), of_b[place..=place]);
        own.execute("SELECT app.outbox_complete($1, 'w')", &[&of_a[place]]).expect("its own lease");
        other.execute("SELECT app.outbox_complete($1, 'w')", &[&of_b[place]]).expect("its own lease");
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn a_tenant_settles_its_own_events_only(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    let (mut own, mut other) =
        (session(database, &roles.worker, Some(A)), session(database, &roles.worker, Some(B)));
    assert_eq!(claim(&mut own, ""), of_a[..2]);
    assert_eq!(claim(&mut other, ""), of_b[..2]);
    let before = everything(database);
    // Under the very name of B's worker.
    for call in [
        "SELECT app.outbox_complete($1, 'w')",
        "SELECT app.outbox_complete($1, 'w', 1)",
        "SELECT app.outbox_fail($1, 'w', 'e')",
    ] {
        let missing = own.refused(call, &[&Uuid::new_v4()]);
        let refusal = own.refused(call, &[&of_b[0]]);
        assert_eq!(refusal.sqlstate, "P0002");
        // As of an event that there is not.
        assert_eq!((&refusal.detail, &refusal.hint), (&missing.detail, &missing.hint));
    }
    for call in [
        "app.outbox_complete_batch($1, 'w')",
        "app.outbox_fail_batch($1, 'w', 'e')",
        "app.outbox_extend_batch($1, 'w')",
        "app.outbox_release_batch($1, 'w')",
    ] {
        assert_eq!(own.query(&format!("SELECT * FROM {call}"), &[&of_b]).expect("none is found").len(), 0);
    }
    assert_eq!(everything(database), before);
    let both = [of_a[0], of_b[0], of_a[1]];
    let completed: Vec<Uuid> = own.column("SELECT * FROM app.outbox_complete_batch($1, 'w')", &[&&both[..]]);
    assert_eq!(completed.len(), 2);
    other.execute("SELECT app.outbox_complete($1, 'w', 1)", &[&of_b[0]]).expect("B's lease is as it was");
}

fn a_tenant_operates_on_its_own_events_only(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    let mut operator = session(database, &roles.operator, Some(A));
    let numbers = "SELECT event_type::text || ' ' || ready || ' ' || dead FROM app.outbox_stats";
    operator.run("SET search_path = app");
    assert_eq!(operator.column::<String>(numbers, &[]), [format!("{} 2 1", event_type(Some(A)))]);
    assert_eq!(operator.value::<i64>("SELECT app.outbox_replay(event_ids => $1)", &[&of_b]), 0);
    assert_eq!(operator.value::<i64>("SELECT app.outbox_replay(tenant_id => $1)", &[&B]), 0);
    assert_eq!(operator.value::<i64>("SELECT app.outbox_purge('0', 100, '{dead,completed}')", &[]), 1);
    let left: Vec<Uuid> =
        database.session().column("SELECT id FROM app.outbox_event WHERE status = 'dead'", &[]);
    assert_eq!(left, of_b[2..]);
    assert_eq!(operator.execute("DELETE FROM app.outbox_event WHERE id = $1", &[&of_b[0]]).expect("none"), 0);
    assert_eq!(
        operator.execute("DELETE FROM app.outbox_event WHERE id = $1", &[&of_a[0]]).expect("its own"),
        1
    );
    act_for(&mut operator, Some(B));
    assert_eq!(operator.value::<i64>("SELECT app.outbox_replay()", &[]), 1);
}

fn one_role_serves_all_tenants(database: &Database, roles: &Roles) {
    let (of_a, of_b) = two_tenants(database, roles);
    for tenant in [None, Some(A)] {
        let mut dispatcher = session(database, &roles.dispatcher, tenant);
        let seen: i64 = dispatcher.value("SELECT pg_catalog.count(*) FROM app.outbox_event", &[]);
        assert_eq!(seen, 7);
    }
    let mut dispatcher = session(database, &roles.dispatcher, None);
    assert_eq!(claim(&mut dispatcher, &format!(", only_tenant => '{B}'")), of_b[..2]);
    let rest = claim(&mut dispatcher, "");
    assert_eq!(rest[..2], of_a[..2]);
    assert_eq!(rest.len(), 3);
    let completed: Vec<Uuid> =
        dispatcher.column("SELECT * FROM app.outbox_complete_batch($1, 'w')", &[&rest]);
    assert_eq!(completed.len(), 3);
    assert_eq!(dispatcher.value::<i64>("SELECT app.outbox_replay()", &[]), 2);
}

#[test]
fn no_tenant_reads_claims_settles_or_learns_of_anothers_events() {
    let platform = Platform::new();
    tenants_are_kept_apart(&platform.database, &platform.roles);
}

#[test]
fn a_tenants_claim_does_not_walk_the_events_of_others() {
    let Platform { database, roles } = Platform::new();
    let mut superuser = database.session();
    for (tenant, count) in [(B, 50_000), (A, 300)] {
        superuser
            .execute(
                "INSERT INTO app.outbox_event (tenant_id, aggregate_type, aggregate_id, event_type, payload)
                 SELECT $1, 'order', gen_random_uuid(), 'order.created', '1' FROM generate_series(1, $2::integer)",
                &[&tenant, &count],
            )
            .expect("a backlog");
    }
    superuser.run("VACUUM ANALYZE app.outbox_event");
    let nobody = Some(Uuid::from_u128(0xC));
    for (tenant, batch, most) in [(Some(A), 100, 1_000), (nobody, 0, 20)] {
        let mut worker = session(&database, &roles.worker, tenant);
        claim(&mut worker, ", only_event_types => '{none}'"); // reads the catalogs
        let claim = "SELECT id FROM app.outbox_claim_batch('w', 100)";
        worker.run("BEGIN");
        buffers(&mut worker, claim); // makes the plans
        worker.run("ROLLBACK");
        let (touched, rows) = buffers(&mut worker, claim);
        assert_eq!(rows, batch);
        assert!(touched <= most, "{touched} buffers for {rows} events");
    }
}

#[test]
fn a_captured_table_makes_events_of_the_tenant_alone() {
    let Platform { database, roles } = Platform::new();
    database.session().run(&format!(
        "CREATE SCHEMA shop AUTHORIZATION {0};
         SET ROLE {0};
         CREATE TABLE shop.orders (id uuid, tenant uuid);
         CREATE TRIGGER capture AFTER INSERT ON shop.orders
             FOR EACH ROW EXECUTE FUNCTION app.outbox_capture('order', 'id', 'tenant=tenant')",
        roles.producer
    ));
    let mut producer = session(&database, &roles.producer, Some(A));
    let insert = "INSERT INTO shop.orders VALUES ($1, $2)";
    producer.execute(insert, &[&Uuid::from_u128(1), &A]).expect("its own");
    for tenant in [Some(B), None] {
        assert_eq!(producer.refused(insert, &[&Uuid::from_u128(1), &tenant]).sqlstate, "42501");
    }
    let mut worker = session(&database, &roles.worker, Some(B));
    assert_eq!(claim(&mut worker, ""), NONE);
    act_for(&mut worker, Some(A));
    assert_eq!(claim(&mut worker, "").len(), 1);
}

#[test]
fn the_script_can_be_run_again_and_the_role_for_all_tenants_be_changed() {
    let Platform { database, roles } = Platform::new();
    secure(&database.dsn(), Some(&roles.dispatcher));
    tenants_are_kept_apart(&database, &roles);
    secure(&database.dsn(), None);
    let seen = "SELECT pg_catalog.count(*) FROM app.outbox_event";
    assert_eq!(session(&database, &roles.dispatcher, None).value::<i64>(seen, &[]), 0);
    // Nor is the one policy the only way.
    support::server::administrator().run(&format!("ALTER ROLE {} BYPASSRLS", roles.dispatcher));
    tenants_are_kept_apart(&database, &roles);
}

#[test]
fn after_a_restore_the_tenants_are_apart_once_the_script_has_run_and_not_before() {
    let Platform { database, roles } = Platform::new();
    let (of_a, of_b) = two_tenants(&database, &roles);
    let target = Database::bare();
    Backup::of(&database, "custom").restore_into(&target);

    let mut worker = session(&target, &roles.worker, Some(A));
    let ids = "SELECT id FROM app.outbox_event WHERE tenant_id IS NOT NULL ORDER BY id";
    let mut both = [of_a.clone(), of_b].concat();
    both.sort();
    assert_eq!(worker.column::<Uuid>(ids, &[]), both, "a dump holds no policy of an extension's table");

    secure(&target.dsn(), Some(&roles.dispatcher));
    let mut own = of_a;
    own.sort();
    assert_eq!(worker.column::<Uuid>(ids, &[]), own);
    tenants_are_kept_apart(&target, &roles);
    // Before the roles: their grants there would keep them from being dropped.
    drop((worker, target));
}

#[test]
fn an_owner_who_is_no_superuser_runs_the_script_and_is_held_to_it() {
    let (database, owner) = Database::owned_by_a_role();
    database.session_as(&owner).run("CREATE SCHEMA app; CREATE EXTENSION outbox_ext SCHEMA app");
    let as_owner = database.dsn().replace("user=postgres", &format!("user={owner}"));
    secure(&as_owner, None);
    let mut session = session(&database, &owner, Some(A));
    let own = enqueue(&mut session, Some(A), Some("key")).expect("an event of its own");
    assert_eq!(refusal(enqueue(&mut session, Some(B), Some("key"))).sqlstate, "42501");
    act_for(&mut session, Some(B));
    enqueue(&mut session, Some(B), Some("key")).expect("an event of its own");
    act_for(&mut session, Some(A));
    assert_eq!(claim(&mut session, ""), [own]);
}
