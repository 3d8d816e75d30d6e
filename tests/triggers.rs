//! Triggers of users: on the table itself, and on business tables that enqueue.

use support::refusal::Refusal;
use support::{Database, Event, Outbox, Sql};

#[test]
fn a_users_triggers_on_the_table_are_run_and_may_change_or_refuse_an_event() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE TABLE log (what text);
         CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF NEW.event_type::text = 'unwanted' THEN RETURN NULL; END IF;
             NEW.headers := jsonb_build_object('marked', true);
             RETURN NEW;
         END $$;
         CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO log VALUES (TG_OP || ' ' || NEW.status); RETURN NULL; END $$;
         CREATE TRIGGER mark BEFORE INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION mark();
         CREATE TRIGGER record AFTER INSERT OR UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION record()",
    );
    let id = session.enqueue(&Event::default());
    let headers: String = session.value("SELECT headers::text FROM outbox_claim_batch('w')", &[]);
    assert_eq!(headers, r#"{"marked": true}"#);
    session.complete(id, "w");
    let log: Vec<String> = session.column("SELECT what FROM log", &[]);
    assert_eq!(log, ["INSERT pending", "UPDATE processing", "UPDATE completed"]);

    for key in [None, Some("k")] {
        let unwanted = Event { event_type: "unwanted", key, ..Event::default() };
        Refusal::expect(session.try_enqueue(&unwanted), "a suppressed event");
    }
    assert_eq!(session.value::<i64>("SELECT count(*) FROM outbox_event", &[]), 1);
}

#[test]
fn the_hash_of_a_plain_insert_fits_a_payload_that_a_users_trigger_changed() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN NEW.payload := '{\"changed\": true}'; RETURN NEW; END $$;
         CREATE TRIGGER mark BEFORE INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION mark();
         INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', gen_random_uuid(), 'order.created', '1')",
    );
    let fits: bool =
        session.value("SELECT payload_hash = outbox_payload_hash(payload) FROM outbox_event", &[]);
    assert!(fits);
}

#[test]
fn an_event_may_enqueue_another_from_a_trigger_on_the_table() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE FUNCTION follow_up() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF (NEW.payload ->> 'left')::integer > 0 THEN
                 PERFORM outbox_enqueue(
                     NULL, 'order', NEW.aggregate_id, 'order.created', 'left ' || (NEW.payload ->> 'left'),
                     jsonb_build_object('left', (NEW.payload ->> 'left')::integer - 1));
             END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER follow_up AFTER INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION follow_up()",
    );
    session.enqueue(&Event::carrying(r#"{"left": 20}"#));
    assert_eq!(session.claim("w", 100).len(), 21);
}

#[test]
fn a_trigger_that_claims_and_settles_while_an_event_is_enqueued_works() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "CREATE FUNCTION at_once() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM outbox_complete(id, 'trigger', attempt_count) FROM outbox_claim_batch('trigger', 10);
             RETURN NULL;
         END $$;
         CREATE TRIGGER at_once AFTER INSERT ON outbox_event FOR EACH ROW EXECUTE FUNCTION at_once()",
    );
    session.enqueue_many(50);
    assert_eq!(session.count("completed"), 50);
}

/// A business table whose rows enqueue an event each.
const ORDERS: &str = "
    CREATE TABLE orders (id uuid PRIMARY KEY, total numeric DEFAULT 1);
    CREATE FUNCTION order_created() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM outbox_enqueue(NULL, 'order', NEW.id, 'order.created', NULL, to_jsonb(NEW));
        RETURN NEW;
    END $$;
    CREATE TRIGGER created {timing} INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_created()";

fn with_orders(timing: &str) -> Database {
    let database = Database::with_extension();
    database.session().run(&ORDERS.replace("{timing}", timing));
    database
}

const UPSERT: &str =
    "INSERT INTO orders VALUES ('00000000-0000-0000-0000-000000000001') ON CONFLICT DO NOTHING";

#[test]
fn a_before_trigger_enqueues_for_rows_that_on_conflict_drops_and_an_after_trigger_does_not() {
    for (timing, events) in [("BEFORE", 2), ("AFTER", 1)] {
        let database = with_orders(timing);
        let mut session = database.session();
        session.run(UPSERT);
        session.run(UPSERT);
        assert_eq!(session.count("pending"), events, "{timing}");
    }
}

#[test]
fn a_session_in_the_replica_role_fires_no_trigger_and_enqueues_nothing() {
    let database = with_orders("AFTER");
    let mut session = database.session();
    session.run("SET session_replication_role = replica");
    session.run(UPSERT);
    assert_eq!(session.count("pending"), 0);
    // The functions themselves work there too.
    let id = session.enqueue(&Event::keyed("k"));
    assert_eq!(session.enqueue(&Event::keyed("k")), id);
    session.claim_one("w");
    session.complete(id, "w");
}

#[test]
fn a_deferred_trigger_enqueues_at_commit_and_not_after_a_rollback() {
    let database = with_orders("AFTER");
    let mut session = database.session();
    session.run(
        "DROP TRIGGER created ON orders;
         CREATE CONSTRAINT TRIGGER created AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION order_created()",
    );
    session.run("BEGIN; INSERT INTO orders VALUES (gen_random_uuid())");
    assert_eq!(session.count("pending"), 0);
    session.run("COMMIT");
    assert_eq!(session.count("pending"), 1);
    session.run("BEGIN; INSERT INTO orders VALUES (gen_random_uuid()); ROLLBACK");
    assert_eq!(session.count("pending"), 1);
}

#[test]
fn a_bulk_load_of_twenty_thousand_rows_enqueues_each_in_order() {
    let database = with_orders("AFTER");
    let mut session = database.session();
    session.run("INSERT INTO orders SELECT gen_random_uuid(), n FROM generate_series(1, 20000) AS n");
    let in_order: bool = session.value(
        "SELECT array_agg((payload ->> 'total')::integer ORDER BY created_at, id) = array_agg(n ORDER BY n)
         FROM outbox_event JOIN generate_series(1, 20000) AS n ON n = (payload ->> 'total')::integer",
        &[],
    );
    assert!(in_order);
}
