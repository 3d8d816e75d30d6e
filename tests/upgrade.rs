//! ALTER EXTENSION UPDATE from every released version: it ends with the catalog of a fresh installation, and what
//! users have built on top stays.

use std::path::PathBuf;
use std::sync::Once;
use support::database::quoted;
use support::server::{program, succeed};
use support::story::live_through;
use support::{Client, Database, Sql};

const RELEASED: [&str; 1] = ["0.1.0"];

/// Puts the install scripts of released versions where the server looks for them: they are not shipped.
fn offer_released_versions() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shared = PathBuf::from(succeed(program("pg_config").arg("--sharedir")).trim()).join("extension");
        let released = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("released");
        for version in RELEASED {
            let file = format!("outbox_ext--{version}.sql");
            let script = std::fs::read_to_string(released.join(&file)).expect("the script is kept");
            let new = shared.join(format!("{file}.{}", std::process::id()));
            std::fs::write(&new, script).expect("the private server's folder can be written");
            std::fs::rename(&new, shared.join(file)).expect("the script gets its name");
        }
    });
}

fn with_version(version: &str) -> Database {
    offer_released_versions();
    let database = Database::bare();
    database.session().run(&format!("CREATE EXTENSION outbox_ext VERSION '{version}'"));
    database
}

/// Every property of every object of the extension, one a line.
fn catalog(session: &mut Client) -> Vec<String> {
    session.run("SET search_path = ''");
    session.column(
        "WITH member AS (
             SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid
             WHERE e.extname = 'outbox_ext' AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
         ), line AS (
             SELECT format('member %s: %s', pg_describe_object(classid, objid, 0),
                           obj_description(objid, classid::regclass::text)) AS line FROM member
             UNION ALL
             SELECT format('function %s(%s) %s: %s %s %s strict %s definer %s rows %s cost %s %s %s %s acl %s',
                           proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), provolatile,
                           proparallel, prokind, proisstrict, prosecdef, prorows, procost, proconfig, prosrc, probin,
                           replace(proacl::text, proowner::regrole::text, 'owner'))
             FROM pg_proc p JOIN member ON objid = p.oid AND classid = 'pg_proc'::regclass
             UNION ALL
             SELECT format('column %s.%s %s %s not null %s default %s storage %s: %s', c.relname, attname, attnum,
                           format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), attstorage,
                           col_description(attrelid, attnum))
             FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
             JOIN member ON objid = c.oid AND classid = 'pg_class'::regclass
             LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
             WHERE attnum > 0 AND NOT attisdropped
             UNION ALL
             SELECT format('index %s: %s', pg_get_indexdef(indexrelid), obj_description(indexrelid, 'pg_class'))
             FROM pg_index JOIN member ON objid = indrelid
             UNION ALL
             SELECT format('trigger %s: %s', pg_get_triggerdef(t.oid), obj_description(t.oid, 'pg_trigger'))
             FROM pg_trigger t JOIN member ON objid = tgrelid
             UNION ALL
             SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid))
             FROM pg_constraint WHERE conname LIKE 'outbox%'
             UNION ALL
             SELECT format('view %s: %s', relname, pg_get_viewdef(c.oid))
             FROM pg_class c JOIN member ON objid = c.oid WHERE relkind = 'v'
             UNION ALL
             SELECT format('relation %s %s %s owner is owner %s acl %s', relname, relkind, reloptions,
                           relowner = extowner, replace(relacl::text, relowner::regrole::text, 'owner'))
             FROM pg_class c JOIN member ON objid = c.oid AND classid = 'pg_class'::regclass
             JOIN pg_extension ON extname = 'outbox_ext'
             UNION ALL
             SELECT format('owned %s %s', proname, proowner = extowner)
             FROM pg_proc p JOIN member ON objid = p.oid JOIN pg_extension ON extname = 'outbox_ext'
             UNION ALL
             SELECT format('extension %s %s dumps %s %s', extversion, extrelocatable, extconfig::regclass[],
                           extcondition)
             FROM pg_extension WHERE extname = 'outbox_ext'
         )
         SELECT line FROM line ORDER BY line",
        &[],
    )
}

/// Fails with the lines that only one of two catalogs has.
fn assert_same(upgraded: &[String], fresh: &[String], version: &str) {
    let only = |these: &[String], others: &[String]| {
        these.iter().filter(|line| !others.contains(line)).cloned().collect::<Vec<_>>()
    };
    let differences = (only(upgraded, fresh), only(fresh, upgraded));
    assert_eq!(differences, (vec![], vec![]), "from {version}");
    assert_eq!(upgraded.len(), fresh.len(), "from {version}");
}

#[test]
fn every_released_version_ends_with_the_catalog_of_a_fresh_installation() {
    let fresh = catalog(&mut Database::with_extension().session());
    assert!(fresh.len() > 50, "{fresh:#?}");
    for version in RELEASED {
        let upgraded = with_version(version);
        let mut session = upgraded.session();
        session.run("ALTER EXTENSION outbox_ext UPDATE");
        assert_same(&catalog(&mut session), &fresh, version);
    }
}

#[test]
fn an_owner_who_is_no_superuser_upgrades_in_a_schema_of_his_own() {
    offer_released_versions();
    let install = |version: &str| {
        let (database, owner) = Database::owned_by_a_role();
        let mut session = database.session_as(&owner);
        session.run("CREATE SCHEMA app");
        session.run(&format!("CREATE EXTENSION outbox_ext SCHEMA app {version}"));
        (database, session)
    };
    let (_fresh_database, mut fresh) = install("");
    for version in RELEASED {
        let (_database, mut session) = install(&format!("VERSION '{version}'"));
        session.run("SET search_path = ''");
        session.run("ALTER EXTENSION outbox_ext UPDATE");
        assert_same(&catalog(&mut session), &catalog(&mut fresh), version);
        live_through(&mut session, "app.");
    }
}

/// An event in every state, and what a user may have built on top.
const BUILT_ON_TOP: &str = "
    INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, deduplication_key, payload, status, attempt_count,
                              locked_at, locked_by, last_error_code)
    VALUES ('order', gen_random_uuid(), 'order.created', 'pending', '1', 'pending', 0, NULL, NULL, NULL),
           ('order', gen_random_uuid(), 'order.created', 'retry', '2', 'pending', 3, NULL, NULL, 'timeout'),
           ('order', gen_random_uuid(), 'order.created', 'processing', '3', 'processing', 1, clock_timestamp(), 'w', NULL),
           ('order', gen_random_uuid(), 'order.created', 'completed', '4', 'completed', 1, NULL, NULL, NULL),
           ('order', gen_random_uuid(), 'order.created', 'dead', '5', 'dead', 1, NULL, NULL, 'poison');
    CREATE VIEW waiting AS SELECT id, event_type, status FROM outbox_event WHERE status = 'pending';
    CREATE FUNCTION place(customer text) RETURNS uuid LANGUAGE sql AS $$
        SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.placed', NULL, to_jsonb(customer)) $$;
    CREATE VIEW claimed AS SELECT * FROM outbox_claim_batch('view-worker', 1);";

#[test]
fn events_and_what_users_have_built_stay() {
    for version in RELEASED {
        let database = with_version(version);
        let mut session = database.session();
        session.run(BUILT_ON_TOP);
        let rows = "SELECT string_agg(concat_ws('|', id, deduplication_key, payload, payload_hash, status, attempt_count,
                        available_at, locked_at, locked_by, last_error_code, completed_at, dead_at, created_at), E'\n'
                        ORDER BY id) FROM outbox_event";
        let before: String = session.value(rows, &[]);
        session.run("ALTER EXTENSION outbox_ext UPDATE");
        assert_eq!(session.value::<String>(rows, &[]), before, "from {version}");

        assert_eq!(session.value::<i64>("SELECT count(*) FROM waiting", &[]), 2);
        session.run("SELECT place('Ada')");
        assert_eq!(session.value::<i64>("SELECT count(*) FROM claimed", &[]), 1);
        assert_eq!(
            session.value::<i64>("SELECT count(*) FROM outbox_claim_batch('w', ordered => true)", &[]),
            2
        );
        assert_eq!(session.value::<i64>("SELECT outbox_replay()", &[]), 1);
        assert_eq!(session.value::<i64>("SELECT outbox_purge('0')", &[]), 1);
        assert_eq!(session.value::<i64>("SELECT sum(ready + processing)::bigint FROM outbox_stats", &[]), 5);
    }
}

#[test]
fn under_an_older_catalog_producers_go_on_and_workers_are_told_what_to_run() {
    for version in RELEASED {
        let database = with_version(version);
        let mut session = database.session();
        session.run("SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.placed', 'k', '1')");
        session.run(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
                     VALUES ('order', gen_random_uuid(), 'order.placed', '2')",
        );
        session.run("UPDATE outbox_event SET available_at = now()");
        for call in ["outbox_claim_batch('w')", "outbox_complete(gen_random_uuid(), 'w')"] {
            let refusal = session.refused(&format!("SELECT * FROM {call}"), &[]);
            assert_eq!(refusal.sqlstate, "55000", "{call}: {refusal:?}");
            let hint = refusal.hint.as_deref().unwrap_or_default();
            assert!(hint.contains("ALTER EXTENSION outbox_ext UPDATE"), "{call}: {refusal:?}");
        }
        // In the same session: what it knows of the older catalog does not outlive the update.
        session.run("ALTER EXTENSION outbox_ext UPDATE");
        assert_eq!(session.value::<i64>("SELECT count(*) FROM outbox_claim_batch('w')", &[]), 2);
    }
}

#[test]
fn an_upgrade_keeps_grants() {
    for version in RELEASED {
        let database = with_version(version);
        let worker = database.role("worker");
        let mut session = database.session();
        session.run(&format!(
            "GRANT EXECUTE ON FUNCTION outbox_claim_batch, outbox_complete TO {worker};
             GRANT SELECT, UPDATE ON outbox_event TO {worker}",
            worker = quoted(&worker)
        ));
        session.run("SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.placed', NULL, '1')");
        session.run("ALTER EXTENSION outbox_ext UPDATE");
        let mut worker = database.session_as(&worker);
        let completed = "SELECT count(outbox_complete(id, 'w')) FROM outbox_claim_batch('w')";
        assert_eq!(worker.value::<i64>(completed, &[]), 1);
    }
}
