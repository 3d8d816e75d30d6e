//! Where the extension lies, and what is in the way: search paths, decoys, renames, a second installation.

use support::database::quoted;
use support::story::{live_through, operate};
use support::{Database, Event, Outbox, Sql};

#[test]
fn everything_works_from_another_schema_under_an_empty_search_path() {
    for schema in ["app", "Odd \"Schema\" {schema} é"] {
        let database = Database::with_extension_in(schema);
        let mut session = database.session();
        session.run("SET search_path = ''");
        operate(&mut session, &format!("{}.", quoted(schema)));
        live_through(&mut session, &format!("{}.", quoted(schema)));
    }
}

#[test]
fn a_plain_insert_works_under_an_empty_search_path() {
    let database = Database::with_extension_in("app");
    let mut session = database.session();
    session.run("SET search_path = ''");
    session.run(
        "INSERT INTO app.outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', gen_random_uuid(), 'order.created', '[1.0]')",
    );
    let sound: bool = session.value(
        "SELECT payload_hash = app.outbox_payload_hash('[1]') AND status = 'pending' FROM app.outbox_event",
        &[],
    );
    assert!(sound);
}

#[test]
fn a_temporary_table_of_the_same_name_is_not_mistaken_for_the_events() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("CREATE TEMPORARY TABLE outbox_event (LIKE public.outbox_event INCLUDING ALL)");
    live_through(&mut session, "public.");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM pg_temp.outbox_event", &[]), 0);
}

/// A schema with everything that statements which are not careful would stumble over.
const DECOYS: &str = "
    CREATE SCHEMA decoy;
    CREATE FUNCTION decoy.trap_integer(integer, integer) RETURNS integer LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'fell for a decoy'; END $$;
    CREATE DOMAIN decoy.text AS pg_catalog.text CHECK (false);
    CREATE DOMAIN decoy.uuid AS pg_catalog.uuid CHECK (false);
    CREATE DOMAIN decoy.jsonb AS pg_catalog.jsonb CHECK (false);
    CREATE DOMAIN decoy.outbox_status AS pg_catalog.text CHECK (false);
    CREATE DOMAIN decoy.outbox_name AS pg_catalog.text CHECK (false);
    CREATE TABLE decoy.outbox_event (LIKE public.outbox_event INCLUDING DEFAULTS);
    CREATE OPERATOR decoy.- (FUNCTION = decoy.trap_integer, LEFTARG = integer, RIGHTARG = integer);
    CREATE OPERATOR decoy.+ (FUNCTION = decoy.trap_integer, LEFTARG = integer, RIGHTARG = integer);
    CREATE FUNCTION decoy.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
        $$ SELECT 'infinity'::timestamptz $$;
    CREATE FUNCTION decoy.octet_length(pg_catalog.text) RETURNS integer LANGUAGE sql AS $$ SELECT 0 $$;
    CREATE FUNCTION decoy.outbox_event_id() RETURNS pg_catalog.uuid LANGUAGE sql AS
        $$ SELECT NULL::pg_catalog.uuid $$;
    CREATE FUNCTION decoy.outbox_payload_hash(pg_catalog.jsonb) RETURNS pg_catalog.text LANGUAGE sql AS
        $$ SELECT NULL::pg_catalog.text $$";

/// Operators of the types that the extension compares.
const DECOY_OPERATORS: &str = "
    DO $$
    DECLARE
        operator name;
        type regtype;
    BEGIN
        FOREACH type IN ARRAY '{text,uuid,integer,bigint,timestamptz,jsonb,tid,boolean}'::regtype[] LOOP
            EXECUTE format(
                'CREATE FUNCTION decoy.trap(a %1$s, b %1$s) RETURNS boolean LANGUAGE plpgsql AS
                 $f$ BEGIN RAISE EXCEPTION $m$fell for a decoy$m$; END $f$', type);
            FOREACH operator IN ARRAY '{=,<>,<,<=,>,>=}'::name[] LOOP
                EXECUTE format(
                    'CREATE OPERATOR decoy.%1$s (FUNCTION = decoy.trap, LEFTARG = %2$s, RIGHTARG = %2$s)',
                    operator, type);
            END LOOP;
        END LOOP;
    END
    $$";

#[test]
fn hostile_operators_functions_types_and_tables_ahead_in_the_search_path_are_not_used() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(DECOYS);
    session.run(DECOY_OPERATORS);
    session.run("SET search_path = decoy, public, pg_catalog");
    let trapped = session.refused("SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text", &[]);
    assert_eq!(trapped.message, "fell for a decoy");
    operate(&mut session, "public.");
    live_through(&mut session, "public.");
    session.run(
        "INSERT INTO public.outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', pg_catalog.gen_random_uuid(), 'order.created', '1')",
    );
    let mut quiet = database.session();
    assert_eq!(quiet.value::<i64>("SELECT count(*) FROM decoy.outbox_event", &[]), 0);
    assert_eq!(quiet.value::<i64>("SELECT count(*) FROM public.outbox_event", &[]), 2);
}

#[test]
fn dropping_and_creating_the_extension_leaves_a_warm_session_working() {
    let database = Database::with_extension();
    let mut session = database.session();
    live_through(&mut session, "");
    session.run("DROP EXTENSION outbox_ext; CREATE EXTENSION outbox_ext");
    live_through(&mut session, "");
    session.run("DROP EXTENSION outbox_ext; CREATE SCHEMA app; CREATE EXTENSION outbox_ext SCHEMA app");
    live_through(&mut session, "app.");
    session.run("BEGIN; DROP EXTENSION outbox_ext; CREATE EXTENSION outbox_ext SCHEMA public");
    let id = session.enqueue(&Event::default());
    assert_eq!(session.claim_one("w").id, id);
    session.complete(id, "w");
    session.run("ROLLBACK");
    live_through(&mut session, "app.");
}

#[test]
fn another_session_that_is_warm_follows_a_drop_and_create() {
    let database = Database::with_extension();
    let (mut warm, mut other) = (database.session(), database.session());
    live_through(&mut warm, "public.");
    other.run("DROP EXTENSION outbox_ext");
    assert_eq!(warm.refused("SELECT public.outbox_enqueue()", &[]).sqlstate, "42883");
    other.run("CREATE EXTENSION outbox_ext");
    live_through(&mut warm, "public.");
}

#[test]
fn a_renamed_schema_is_followed_and_a_decoy_under_the_old_name_is_not() {
    let database = Database::with_extension_in("app");
    let (mut warm, mut other) = (database.session(), database.session());
    live_through(&mut warm, "app.");
    other.run(
        "ALTER SCHEMA app RENAME TO moved;
         CREATE SCHEMA app;
         CREATE TABLE app.outbox_event (LIKE moved.outbox_event INCLUDING ALL)",
    );
    live_through(&mut warm, "moved.");
    assert_eq!(warm.value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 0);
    warm.run("DROP SCHEMA app CASCADE; ALTER SCHEMA moved RENAME TO app");
    live_through(&mut warm, "app.");
}

#[test]
fn two_schemas_that_swap_names_do_not_confuse_a_warm_session() {
    let database = Database::with_extension_in("a");
    let mut session = database.session();
    session.run("CREATE SCHEMA b; CREATE TABLE b.outbox_event (LIKE a.outbox_event INCLUDING ALL)");
    live_through(&mut session, "a.");
    session.run("ALTER SCHEMA a RENAME TO c; ALTER SCHEMA b RENAME TO a; ALTER SCHEMA c RENAME TO b");
    live_through(&mut session, "b.");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM a.outbox_event", &[]), 0);
}

#[test]
fn set_schema_is_refused_and_the_session_goes_on() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run("CREATE SCHEMA app");
    live_through(&mut session, "");
    assert_eq!(session.refused("ALTER EXTENSION outbox_ext SET SCHEMA app", &[]).sqlstate, "0A000");
    live_through(&mut session, "");
}

#[test]
fn changes_of_the_table_are_followed_by_a_warm_session() {
    let database = Database::with_extension();
    let mut session = database.session();
    live_through(&mut session, "");
    for change in [
        "ALTER TABLE outbox_event ADD COLUMN note text DEFAULT 'x'",
        "CREATE INDEX ON outbox_event (aggregate_id)",
        "ALTER TABLE outbox_event DROP COLUMN note",
        "VACUUM FULL outbox_event",
        "REINDEX TABLE outbox_event",
        "ANALYZE outbox_event",
        "TRUNCATE outbox_event",
    ] {
        session.run(change);
        live_through(&mut session, "");
    }
}

#[test]
fn discard_all_between_calls_is_no_obstacle() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    session.run("DISCARD ALL");
    assert_eq!(session.claim_one("w").id, id);
    session.run("DISCARD ALL");
    session.complete(id, "w");
    session.run("DISCARD ALL");
    live_through(&mut session, "");
}

#[test]
fn a_read_only_transaction_refuses_what_writes_and_hashes() {
    let database = Database::with_extension();
    let mut session = database.session();
    let id = session.enqueue(&Event::default());
    for call in [
        "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1')",
        "SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', 'k', '1')",
        "SELECT * FROM outbox_claim_batch('w')",
        &format!("SELECT outbox_complete('{id}', 'w')"),
        &format!("SELECT outbox_fail('{id}', 'w', 'oops')"),
    ] {
        session.run("BEGIN READ ONLY");
        assert_eq!(session.refused(call, &[]).sqlstate, "25006", "{call}");
        session.run("ROLLBACK");
    }
    session.run("BEGIN READ ONLY; SELECT outbox_payload_hash('1'); COMMIT");
}

#[test]
fn the_functions_work_inside_functions_that_set_their_own_search_path() {
    let database = Database::with_extension_in("app");
    let mut session = database.session();
    session.run(
        "CREATE TABLE public.orders (id uuid PRIMARY KEY, total numeric);
         CREATE FUNCTION public.order_created() RETURNS trigger
         LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
         BEGIN
             PERFORM app.outbox_enqueue(NULL, 'order', NEW.id, 'order.created', NEW.id::text, to_jsonb(NEW));
             RETURN NULL;
         END $$;
         CREATE TRIGGER created AFTER INSERT ON public.orders
         FOR EACH ROW EXECUTE FUNCTION public.order_created();
         INSERT INTO public.orders SELECT gen_random_uuid(), n FROM generate_series(1, 100) AS n",
    );
    assert_eq!(session.value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 100);
    session.run("BEGIN; INSERT INTO public.orders VALUES (gen_random_uuid(), 5); ROLLBACK");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM app.outbox_event", &[]), 100);
}
