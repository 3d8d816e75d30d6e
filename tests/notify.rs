//! Waking workers: `outbox.notify_channel`.

use postgres::fallible_iterator::FallibleIterator;
use std::time::Duration;
use support::{Client, Database, Event, Outbox, Sql};

const ON: &str = "SET outbox.notify_channel = 'outbox'";

/// A database with a session that enqueues and one that listens.
struct Scene {
    database: Database,
    producer: Client,
    listener: Client,
}

impl Scene {
    fn set() -> Self {
        let database = Database::with_extension();
        let (mut producer, mut listener) = (database.session(), database.session());
        producer.run(ON);
        listener.run("LISTEN outbox; LISTEN fence");
        Self { database, producer, listener }
    }

    /// The texts of the notifications that came for what the producer has done.
    fn heard(&mut self) -> Vec<String> {
        // Notifications come in the order of the commits, so this one ends those that were before it.
        self.producer.run("NOTIFY fence");
        let mut notifications = self.listener.notifications();
        let mut incoming = notifications.timeout_iter(Duration::from_secs(60));
        let mut heard = Vec::new();
        loop {
            let one = incoming.next().expect("the session lives").expect("the fence comes");
            if one.channel() == "fence" {
                return heard;
            }
            assert_eq!(one.channel(), "outbox");
            heard.push(one.payload().to_owned());
        }
    }

    /// How often the listener was woken by what is done.
    fn woken_by<T>(&mut self, work: impl FnOnce(&mut Client) -> T) -> usize {
        work(&mut self.producer);
        self.heard().len()
    }
}

#[test]
fn a_listening_worker_is_woken_by_the_commit_and_finds_the_event() {
    let mut scene = Scene::set();
    let mut bystander = scene.database.session();
    let mut transaction = scene.producer.transaction().expect("BEGIN");
    transaction
        .execute("SELECT outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, '1')", &[])
        .expect("enqueue");
    // What another session says meanwhile comes alone.
    bystander.run("NOTIFY fence");
    let first =
        scene.listener.notifications().blocking_iter().next().expect("alive").expect("a notification");
    assert_eq!(first.channel(), "fence");
    transaction.commit().expect("COMMIT");
    assert_eq!(scene.heard(), [""]);
    scene.listener.claim_one("w");
}

#[test]
fn a_rollback_wakes_nobody() {
    let mut scene = Scene::set();
    let woken = scene.woken_by(|producer| {
        producer.run("BEGIN");
        producer.enqueue(&Event::default());
        producer.run("ROLLBACK; BEGIN; SAVEPOINT s");
        producer.enqueue(&Event::default());
        producer.run("ROLLBACK TO s; COMMIT");
    });
    assert_eq!(woken, 0);
}

#[test]
fn what_follows_a_rolled_back_savepoint_wakes() {
    let mut scene = Scene::set();
    let woken = scene.woken_by(|producer| {
        producer.run("BEGIN; SAVEPOINT s");
        producer.enqueue(&Event::default());
        producer.run("ROLLBACK TO s");
        producer.enqueue(&Event::default());
        producer.run("COMMIT");
    });
    assert_eq!(woken, 1);
}

#[test]
fn a_transaction_of_many_enqueues_notifies_once() {
    let mut scene = Scene::set();
    let woken = scene.woken_by(|producer| {
        producer.run("BEGIN");
        producer.enqueue_many(1_000);
        producer.run("SAVEPOINT s");
        producer.enqueue_many(10);
        producer.run("RELEASE s");
        producer.enqueue_many(10);
        producer.run("COMMIT");
    });
    assert_eq!(woken, 1);
    assert_eq!(scene.woken_by(|producer| (0..3).for_each(|_| producer.enqueue_many(5))), 3);
}

#[test]
fn plain_inserts_and_copy_wake_as_well() {
    const COLUMNS: &str = "outbox_event (aggregate_type, aggregate_id, event_type, payload)";
    let mut scene = Scene::set();
    let woken = scene.woken_by(|producer| {
        producer
            .run(&format!("INSERT INTO {COLUMNS} VALUES ('order', gen_random_uuid(), 'order.created', '1')"));
    });
    assert_eq!(woken, 1);
    let woken = scene.woken_by(|producer| {
        let mut copy = producer.copy_in(&format!("COPY {COLUMNS} FROM stdin")).expect("COPY");
        let line = b"order\t00000000-0000-0000-0000-000000000001\torder.created\t1\n";
        std::io::Write::write_all(&mut copy, &line.repeat(20)).expect("lines");
        copy.finish().expect("COPY");
    });
    assert_eq!(woken, 1);
}

#[test]
fn batches_replays_and_releases_wake_as_well_and_other_batches_do_not() {
    let mut scene = Scene::set();
    let mut woken_by = |sql: &str| scene.woken_by(|producer| producer.run(sql));
    let event = |available_at: &str| {
        format!(
            r#"SELECT * FROM outbox_enqueue_batch('[{{"aggregate_type": "order", "event_type": "order.created",
                   "aggregate_id": "00000000-0000-0000-0000-000000000001", "payload": 1{available_at}}}]')"#
        )
    };
    assert_eq!(woken_by(&event(r#", "available_at": "2100-01-01T00:00:00Z""#)), 0);
    assert_eq!(woken_by(&event("")), 1);
    assert_eq!(woken_by("SELECT * FROM outbox_claim_batch('w')"), 0);
    let leased = "(SELECT array_agg(id) FROM outbox_event WHERE status = 'processing')";
    assert_eq!(woken_by(&format!("SELECT * FROM outbox_extend_batch({leased}, 'w')")), 0);
    assert_eq!(woken_by(&format!("SELECT * FROM outbox_release_batch({leased}, 'w')")), 1);
    assert_eq!(woken_by("SELECT * FROM outbox_claim_batch('w')"), 0);
    assert_eq!(woken_by(&format!("SELECT * FROM outbox_fail_batch({leased}, 'w', 'e', 0)")), 0);
    assert_eq!(woken_by("SELECT outbox_replay()"), 1);
    assert_eq!(woken_by("SELECT * FROM outbox_claim_batch('w')"), 0);
    assert_eq!(woken_by(&format!("SELECT * FROM outbox_complete_batch({leased}, 'w')")), 0);
    assert_eq!(woken_by("SELECT outbox_purge('0 seconds')"), 0);
}

#[test]
fn only_what_becomes_claimable_wakes() {
    let mut scene = Scene::set();
    let later = Event { available_at: Some("2100-01-01"), ..Event::default() };
    assert_eq!(scene.woken_by(|producer| producer.enqueue(&later)), 0);
    scene.producer.run("DELETE FROM outbox_event");

    let id = scene.producer.enqueue(&Event::default());
    assert_eq!(scene.heard().len(), 1);
    assert_eq!(scene.woken_by(|producer| producer.run("UPDATE outbox_event SET headers = '{}'")), 0);
    assert_eq!(scene.woken_by(|producer| producer.claim("w", 1)), 0);
    let retry_tomorrow = "SELECT outbox_fail(id, 'w', 'e', 5, now() + interval '1 day') FROM outbox_event";
    assert_eq!(scene.woken_by(|producer| producer.run(retry_tomorrow)), 0);
    let now = "UPDATE outbox_event SET available_at = clock_timestamp()";
    assert_eq!(scene.woken_by(|producer| producer.run(now)), 1);
    scene.producer.claim_one("w");
    let retry_at_once = "SELECT outbox_fail(id, 'w', 'e', 5, '2000-01-01') FROM outbox_event";
    assert_eq!(scene.woken_by(|producer| producer.run(retry_at_once)), 1);
    scene.producer.claim_one("w");
    assert_eq!(scene.woken_by(|producer| producer.fail(id, "w", 0)), 0);
    let replay = "UPDATE outbox_event SET status = 'pending'";
    assert_eq!(scene.woken_by(|producer| producer.run(replay)), 1);
    scene.producer.claim_one("w");
    assert_eq!(scene.woken_by(|producer| producer.complete(id, "w")), 0);
}

#[test]
fn it_is_off_by_default_and_where_it_is_set_to_nothing() {
    let mut scene = Scene::set();
    for off in ["RESET outbox.notify_channel", "SET outbox.notify_channel = ''"] {
        scene.producer.run(off);
        assert_eq!(scene.woken_by(|producer| producer.enqueue_many(3)), 0, "{off}");
    }
}

#[test]
fn a_database_has_it_on_for_new_sessions_plain_inserts_included() {
    let mut scene = Scene::set();
    scene.producer.run(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET outbox.notify_channel = ''outbox''', current_database());
         END $$",
    );
    scene.producer = scene.database.session();
    let insert = "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)
                  VALUES ('order', gen_random_uuid(), 'order.created', '1')";
    assert_eq!(scene.woken_by(|producer| producer.run(insert)), 1);
}

#[test]
fn a_channel_is_named_as_it_is_listened_to() {
    let mut scene = Scene::set();
    scene.producer.run("SET outbox.notify_channel = 'Orders Outbox'");
    scene.listener.run("LISTEN \"Orders Outbox\"");
    scene.producer.enqueue(&Event::default());
    let heard =
        scene.listener.notifications().blocking_iter().next().expect("alive").expect("a notification");
    assert_eq!(heard.channel(), "Orders Outbox");
}

#[test]
fn large_payloads_are_no_problem() {
    let mut scene = Scene::set();
    for bytes in [9_000, 1_000_000] {
        let payload = format!("\"{}\"", "x".repeat(bytes));
        assert_eq!(scene.woken_by(|producer| producer.enqueue(&Event::carrying(&payload))), 1, "{bytes}");
    }
}

#[test]
fn a_transaction_that_notifies_cannot_be_prepared_and_one_that_does_not_can() {
    let mut scene = Scene::set();
    scene.producer.run("BEGIN");
    scene.producer.enqueue(&Event::default());
    let prepare = format!("PREPARE TRANSACTION 'notify {}'", scene.producer.backend());
    assert_eq!(scene.producer.refused(&prepare, &[]).sqlstate, "0A000");
    scene.producer.run("ROLLBACK");
    assert_eq!(scene.producer.count("pending"), 0);

    scene.producer.run("BEGIN; SET LOCAL outbox.notify_channel = ''");
    scene.producer.enqueue(&Event::default());
    scene.producer.run(&prepare);
    scene.producer.run(&prepare.replace("PREPARE TRANSACTION", "COMMIT PREPARED"));
    assert_eq!(scene.heard().len(), 0);
    assert_eq!(scene.producer.count("pending"), 1);
}

#[test]
fn an_event_that_a_deferred_trigger_enqueues_wakes() {
    let mut scene = Scene::set();
    scene.producer.run(
        "CREATE TABLE orders (id uuid);
         CREATE FUNCTION created() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM outbox_enqueue(NULL, 'order', NEW.id, 'order.created', NULL, to_jsonb(NEW));
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER created AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION created()",
    );
    assert_eq!(scene.woken_by(|producer| producer.run("INSERT INTO orders VALUES (gen_random_uuid())")), 1);
}
