//! outbox_grant: each duty can do all that belongs to it, under an empty search_path, and nothing else.

use support::backup::Backup;
use support::{Client, Database, Sql, Uuid};

const DUTIES: [&str; 3] = ["producer", "worker", "operator"];

/// What each duty may call, and a call of it that has nothing to do.
const CALLS: [(&str, &str); 11] = [
    (
        "producer",
        "SELECT app.outbox_enqueue(NULL, 'order', '0dd00000-0000-4000-8000-000000000001', 'order.created', NULL, '1')",
    ),
    ("producer", "SELECT * FROM app.outbox_enqueue_batch('[]')"),
    ("worker", "SELECT FROM app.outbox_claim_batch('idle', 1, only_event_types => '{none}')"),
    ("worker", "SELECT * FROM app.outbox_complete_batch('{}', 'w')"),
    ("worker", "SELECT * FROM app.outbox_fail_batch('{}', 'w', 'e')"),
    ("worker", "SELECT * FROM app.outbox_extend_batch('{}', 'w')"),
    ("worker", "SELECT * FROM app.outbox_release_batch('{}', 'w')"),
    ("operator", "SELECT app.outbox_replay(event_type => 'none')"),
    ("operator", "SELECT app.outbox_purge('1000 years')"),
    ("operator", "SELECT * FROM app.outbox_stats"),
    ("operator", "SELECT app.outbox_purge('1000 years', 1, '{dead}')"),
];

/// Calls that find no event (P0002) when they are allowed.
const CALLS_IN_VAIN: [&str; 2] = [
    "SELECT app.outbox_complete('0dd00000-0000-4000-8000-000000000001', 'w')",
    "SELECT app.outbox_fail('0dd00000-0000-4000-8000-000000000001', 'w', 'e')",
];

/// What may be done to the table, and by whom.
const ACCESS: [(&[&str], &str); 12] = [
    (&["worker", "operator"], "SELECT payload FROM app.outbox_event"),
    (&["worker", "operator"], "SELECT headers FROM app.outbox_event"),
    (&["worker", "operator"], "SELECT * FROM app.outbox_event"),
    (&["producer", "worker", "operator"], "SELECT id, deduplication_key, payload_hash FROM app.outbox_event"),
    (&["worker", "operator"], "UPDATE app.outbox_event SET status = status"),
    (&[], "UPDATE app.outbox_event SET payload = '1'"),
    (&[], "UPDATE app.outbox_event SET headers = NULL"),
    (&[], "UPDATE app.outbox_event SET tenant_id = NULL"),
    (&["worker", "operator"], "DELETE FROM app.outbox_event WHERE id = '0dd00000-0000-4000-8000-000000000001'"),
    (&[], "TRUNCATE app.outbox_event"),
    (
        &["producer"],
        "INSERT INTO app.outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', '0dd00000-0000-4000-8000-000000000001', 'order.created', '1')",
    ),
    (
        &[],
        "INSERT INTO app.outbox_event (aggregate_type, aggregate_id, event_type, payload, status, completed_at)
         VALUES ('order', '0dd00000-0000-4000-8000-000000000001', 'order.created', '1', 'completed', now())",
    ),
];

/// A database with the extension in schema `app`, and a role for each duty.
struct Company {
    database: Database,
    roles: Vec<String>,
}

impl Company {
    fn new() -> Self {
        let database = Database::with_extension_in("app");
        let roles: Vec<String> = DUTIES.iter().map(|duty| database.role(duty)).collect();
        for (duty, role) in DUTIES.iter().zip(&roles) {
            grant(&mut database.session(), role, duty);
        }
        Self { database, roles }
    }

    /// A session of the role that has the duty.
    fn session(&self, duty: &str) -> Client {
        let role = DUTIES.iter().position(|known| *known == duty).expect("a duty");
        with_empty_path(&self.database, &self.roles[role])
    }
}

fn grant(session: &mut Client, role: &str, duty: &str) {
    session
        .execute("SELECT app.outbox_grant($1::text::regrole, $2)", &[&role, &duty])
        .unwrap_or_else(|error| panic!("{duty}: {error:?}"));
}

fn with_empty_path(database: &Database, role: &str) -> Client {
    let mut session = database.session_as(role);
    session.run("SET search_path = ''");
    session
}

/// Runs a statement, and takes back what it did; the SQLSTATE, if it is refused.
fn outcome(session: &mut Client, sql: &str) -> Option<String> {
    session.run("BEGIN");
    let outcome = session.query(sql, &[]).err();
    session.run("ROLLBACK");
    outcome.map(|error| error.code().expect("an error of the server").code().to_owned())
}

fn may(session: &mut Client, sql: &str, allowed: bool, who: &str) {
    let refused = outcome(session, sql);
    assert_eq!(refused.as_deref(), (!allowed).then_some("42501"), "{who}: {sql}");
}

/// The whole table of duties and what they may call and touch.
fn each_duty_may_do_its_own(database: &Database, roles: &[String]) {
    for (duty, role) in DUTIES.into_iter().zip(roles) {
        let session = &mut with_empty_path(database, role);
        for (of, call) in CALLS {
            may(session, call, of == duty, duty);
        }
        for call in CALLS_IN_VAIN {
            let expected = if duty == "worker" { "P0002" } else { "42501" };
            assert_eq!(outcome(session, call).as_deref(), Some(expected), "{duty}: {call}");
        }
        for (of, statement) in ACCESS {
            may(session, statement, of.contains(&duty), duty);
        }
        may(session, "SELECT app.outbox_grant(current_user::text::regrole, 'operator')", false, duty);
    }
}

#[test]
fn each_duty_may_call_and_touch_what_belongs_to_it_and_nothing_else() {
    let company = Company::new();
    each_duty_may_do_its_own(&company.database, &company.roles);
}

#[test]
fn a_role_with_usage_alone_may_call_nothing_that_writes_and_touch_nothing() {
    let database = Database::with_extension_in("app");
    let role = database.role("visitor");
    database.session().run(&format!("GRANT USAGE ON SCHEMA app TO {role}"));
    let session = &mut with_empty_path(&database, &role);
    for call in CALLS.iter().map(|(_, call)| *call).chain(CALLS_IN_VAIN) {
        may(session, call, false, "a visitor");
    }
    for (_, statement) in ACCESS {
        may(session, statement, false, "a visitor");
    }
    may(session, "SELECT app.outbox_grant(current_user::text::regrole, 'worker')", false, "a visitor");
    may(session, "SELECT app.outbox_payload_hash('1'), app.outbox_event_id()", true, "a visitor");
}

const ORDER: &str = "'order', '0dd00000-0000-4000-8000-000000000001', 'order.created'";

/// As JSON text.
const ELEMENT: &str = r#"{"aggregate_type": "order", "aggregate_id": "0dd00000-0000-4000-8000-000000000001",
                          "event_type": "order.created", "payload": 1"#;

#[test]
fn a_producer_enqueues_with_and_without_keys_alone_and_in_bulk() {
    let company = Company::new();
    let mut producer = company.session("producer");
    let tenants = ["NULL", "'7e000000-0000-4000-8000-000000000001'"];
    for tenant in tenants {
        let once = format!("SELECT app.outbox_enqueue({tenant}, {ORDER}, 'key', '1')");
        let first: Uuid = producer.value(&once, &[]);
        assert_eq!(producer.value::<Uuid>(&once, &[]), first);
        let other = format!("SELECT app.outbox_enqueue({tenant}, {ORDER}, 'key', '2')");
        assert_eq!(producer.refused(&other, &[]).sqlstate, "23505");
        producer.run(&format!(
            "SELECT app.outbox_enqueue({tenant}, {ORDER}, NULL, '1', '2020-01-01', '{{\"trace\": 1}}')"
        ));
        let tenant = tenant.replace('\'', "\"").to_lowercase();
        let batch = format!(
            "SELECT deduplicated FROM app.outbox_enqueue_batch('[
                 {ELEMENT}}},
                 {ELEMENT}, \"tenant_id\": {tenant}, \"deduplication_key\": \"key\"}},
                 {ELEMENT}, \"tenant_id\": {tenant}, \"deduplication_key\": \"new\", \"headers\": {{}}}}]')"
        );
        assert_eq!(producer.column::<bool>(&batch, &[]), [false, true, false]);
    }
    assert_eq!(company.database.session().value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 8);
}

#[test]
fn a_producer_enqueues_by_a_trigger_on_a_table_of_its_own() {
    let company = Company::new();
    let mut session = company.database.session();
    session.run(&format!("CREATE SCHEMA shop AUTHORIZATION {}", company.roles[0]));
    let mut producer = company.session("producer");
    producer.run(
        "CREATE TABLE shop.orders (id uuid);
         CREATE FUNCTION shop.announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM app.outbox_enqueue(NULL, 'order', NEW.id, 'order.created', NULL, pg_catalog.to_jsonb(NEW));
             RETURN NULL;
         END $$;
         CREATE TRIGGER announce AFTER INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.announce();
         INSERT INTO shop.orders VALUES (pg_catalog.gen_random_uuid())",
    );
    assert_eq!(session.value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 1);
}

#[test]
fn a_producer_captures_a_table_of_its_own_and_no_other_duty_does() {
    let company = Company::new();
    for (duty, role) in DUTIES.into_iter().zip(&company.roles) {
        company.database.session().run(&format!("CREATE SCHEMA shop AUTHORIZATION {role}"));
        let mut session = company.session(duty);
        session.run("CREATE TABLE shop.orders (id uuid, total numeric)");
        let capture = "CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON shop.orders
                       FOR EACH ROW EXECUTE FUNCTION app.outbox_capture('order', 'id')";
        if duty == "producer" {
            session.run(capture);
            session.run(
                "INSERT INTO shop.orders VALUES ('0dd00000-0000-4000-8000-000000000001', 1);
                 UPDATE shop.orders SET total = 2; DELETE FROM shop.orders",
            );
        } else {
            assert_eq!(session.refused(capture, &[]).sqlstate, "42501", "{duty}");
        }
        company.database.session().run("DROP SCHEMA shop CASCADE");
    }
    let captured: Vec<String> =
        company.database.session().column("SELECT event_type::text FROM app.outbox_event ORDER BY id", &[]);
    assert_eq!(captured, ["order.created", "order.updated", "order.deleted"]);
}

/// Enqueues so many events, claims them, and returns their ids.
fn claimed(company: &Company, worker: &mut Client, count: i32, more: &str) -> Vec<Uuid> {
    company
        .session("producer")
        .execute(
            &format!("SELECT app.outbox_enqueue(NULL, {ORDER}, NULL, '1') FROM generate_series(1, $1)"),
            &[&count],
        )
        .expect("a producer");
    worker.column(&format!("SELECT id FROM app.outbox_claim_batch('w', 100 {more})"), &[])
}

#[test]
fn a_worker_claims_and_settles_in_every_way() {
    let company = Company::new();
    let mut worker = company.session("worker");
    for setting in ["off", "on"] {
        worker.run(&format!("SET outbox.delete_completed = {setting}"));
        let ids = claimed(&company, &mut worker, 6, "");
        assert_eq!(ids.len(), 6);
        worker.execute("SELECT app.outbox_complete($1, 'w')", &[&ids[0]]).expect("complete");
        let status: String = worker.value("SELECT app.outbox_fail($1, 'w', 'e', 0)", &[&ids[1]]);
        assert_eq!(status, "dead");
        let status: String =
            worker.value("SELECT app.outbox_fail($1, 'w', 'e', next_attempt => '2100-01-01')", &[&ids[2]]);
        assert_eq!(status, "pending");
        let batch = |worker: &mut Client, call: &str, ids: &[Uuid]| {
            let touched: Vec<Uuid> = worker.column(&format!("SELECT id FROM app.{call} AS id"), &[&ids]);
            assert_eq!(touched.len(), ids.len(), "{call}");
        };
        batch(&mut worker, "outbox_extend_batch($1, 'w')", &ids[3..]);
        batch(&mut worker, "outbox_complete_batch($1, 'w')", &ids[3..4]);
        let failed: Vec<String> =
            worker.column("SELECT status FROM app.outbox_fail_batch($1, 'w', 'e', 0)", &[&&ids[4..5]]);
        assert_eq!(failed, ["dead"]);
        batch(&mut worker, "outbox_release_batch($1, 'w')", &ids[5..]);
        worker.run("SELECT app.outbox_complete_batch(array_agg(id), 'w') FROM app.outbox_claim_batch('w')");
    }
    let left: Vec<String> = company.database.session().column(
        "SELECT status::text || ' ' || count(*) FROM app.outbox_event GROUP BY status ORDER BY 1",
        &[],
    );
    // Of each round two died and one waits; what the second completed is gone.
    assert_eq!(left, ["completed 3", "dead 4", "pending 2"]);
}

#[test]
fn a_worker_claims_in_order_by_filter_and_what_has_expired() {
    let company = Company::new();
    let mut worker = company.session("worker");
    assert_eq!(claimed(&company, &mut worker, 3, ", ordered => true").len(), 1);
    let ids = claimed(&company, &mut worker, 0, ", only_event_types => '{order.created}'");
    assert_eq!(ids.len(), 2);
    // Expired leases are taken over, buried when their attempts are used up, and their successors moved up.
    let reclaimed: Vec<Uuid> =
        worker.column("SELECT id FROM app.outbox_claim_batch('w', 100, '1 microsecond')", &[]);
    assert_eq!(reclaimed.len(), 3);
    worker.run("SELECT FROM app.outbox_claim_batch('w', 100, '1 microsecond', 0)");
    let dead: i64 =
        worker.value("SELECT pg_catalog.count(*) FROM app.outbox_event WHERE dead_at IS NOT NULL", &[]);
    assert_eq!(dead, 3);
}

#[test]
fn an_operator_replays_purges_and_looks() {
    let company = Company::new();
    let (mut worker, mut operator) = (company.session("worker"), company.session("operator"));
    let ids = claimed(&company, &mut worker, 4, "");
    worker.execute("SELECT app.outbox_complete_batch($1, 'w')", &[&&ids[..2]]).expect("complete");
    worker.execute("SELECT app.outbox_fail_batch($1, 'w', 'e', 0)", &[&&ids[2..]]).expect("fail");
    assert_eq!(operator.value::<i64>("SELECT dead FROM app.outbox_stats", &[]), 2);
    assert_eq!(operator.value::<i64>("SELECT app.outbox_replay(max_events => 1)", &[]), 1);
    assert_eq!(operator.value::<i64>("SELECT app.outbox_purge('0', 100, '{completed,dead}')", &[]), 3);
    let rest = operator.query("SELECT ready, dead FROM app.outbox_stats", &[]).expect("the view");
    assert_eq!((rest[0].get::<_, i64>(0), rest[0].get::<_, i64>(1)), (1, 0));
    let payloads: Vec<serde_json::Value> = operator.column("SELECT payload FROM app.outbox_event", &[]);
    assert_eq!(payloads, [serde_json::json!(1)]);
}

#[test]
fn a_role_with_two_duties_has_both_and_their_members_inherit_them() {
    let company = Company::new();
    let member = company.database.role("member");
    let mut session = company.database.session();
    session.run(&format!("GRANT {}, {} TO {member}", company.roles[0], company.roles[1]));
    let mut member = with_empty_path(&company.database, &member);
    for (of, call) in CALLS {
        may(&mut member, call, of != "operator", "a member of two");
    }
}

#[test]
fn the_owner_of_the_extension_grants_whether_or_not_the_schema_is_its_own() {
    let (database, owner) = Database::owned_by_a_role();
    let roles: Vec<String> = DUTIES.iter().map(|duty| database.role(duty)).collect();
    let mut session = database.session_as(&owner);
    session.run("CREATE SCHEMA app; CREATE EXTENSION outbox_ext SCHEMA app");
    for (duty, role) in DUTIES.iter().zip(&roles) {
        grant(&mut session, role, duty);
    }
    each_duty_may_do_its_own(&database, &roles);

    // In public, which is neither's, and on which everybody has USAGE.
    session.run("DROP EXTENSION outbox_ext; DROP SCHEMA app");
    let creator = database.role("creator");
    session.run(&format!("GRANT CREATE ON DATABASE {} TO {creator}", database.name()));
    database.session().run(&format!("GRANT CREATE ON SCHEMA public TO {creator}"));
    let mut creator = database.session_as(&creator);
    creator.run("CREATE EXTENSION outbox_ext");
    creator.run(&format!("SELECT outbox_grant('{}', 'producer')", roles[0]));
    let mut producer = database.session_as(&roles[0]);
    producer.run(&format!("SELECT outbox_enqueue(NULL, {ORDER}, NULL, '1')"));
    creator.run("DROP EXTENSION outbox_ext");
}

#[test]
fn functions_of_the_same_names_that_are_not_the_extensions_are_not_granted() {
    let database = Database::with_extension_in("app");
    let role = database.role("producer");
    let mut session = database.session();
    session.run(
        "CREATE FUNCTION app.outbox_enqueue(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION app.outbox_capture(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
         REVOKE ALL ON FUNCTION app.outbox_enqueue(text), app.outbox_capture(text) FROM PUBLIC;
         CREATE SCHEMA decoy; CREATE TABLE decoy.outbox_event (id uuid); SET search_path = decoy, app",
    );
    grant(&mut session, &role, "producer");
    let granted: Vec<bool> = session.column(
        "SELECT has_function_privilege($1::text, p, 'EXECUTE')
         FROM unnest('{app.outbox_enqueue(text), app.outbox_capture(text)}'::regprocedure[]) AS p
         UNION ALL SELECT has_any_column_privilege($1::text, 'decoy.outbox_event', 'SELECT')",
        &[&role],
    );
    assert_eq!(granted, [false; 3]);
    let mut producer = with_empty_path(&database, &role);
    producer.run(&format!("SELECT app.outbox_enqueue(NULL::uuid, {ORDER}, NULL, '1')"));
}

#[test]
fn grants_survive_a_dump_and_its_restore() {
    let company = Company::new();
    let target = Database::bare();
    Backup::of(&company.database, "custom").restore_into(&target);
    each_duty_may_do_its_own(&target, &company.roles);
    // Before the roles: their grants there would keep them from being dropped.
    drop(target);
}
