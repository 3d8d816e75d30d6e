//! How clients call: binary parameters, prepared statements, cursors, common table expressions.

use serde_json::json;
use std::time::{Duration, SystemTime};
use support::{Database, Event, Outbox, Sql, Uuid};

#[test]
fn binary_parameters_arrive_as_they_were_sent() {
    let database = Database::with_extension();
    let mut session = database.session();
    let (tenant, aggregate) = (Uuid::new_v4(), Uuid::new_v4());
    let payload = json!({"text": "quote \" backslash \\ newline \n \\x41 E'\\101'", "list": [1, 2.5, null]});
    let headers = json!({"traceparent": "00-ab"});
    let due = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let id: Uuid = session.value(
        "SELECT outbox_enqueue($1, $2, $3, $4, $5, $6, $7, $8)",
        &[&Some(tenant), &"order", &aggregate, &"order.created", &Some("key"), &payload, &due, &headers],
    );
    let row = session.query_one("SELECT * FROM outbox_claim_batch($1, $2)", &[&"w", &1]).expect("one event");
    assert_eq!(row.get::<_, Uuid>("id"), id);
    assert_eq!(row.get::<_, Option<Uuid>>("tenant_id"), Some(tenant));
    assert_eq!(row.get::<_, &str>("aggregate_type"), "order");
    assert_eq!(row.get::<_, Uuid>("aggregate_id"), aggregate);
    assert_eq!(row.get::<_, &str>("event_type"), "order.created");
    assert_eq!(row.get::<_, Option<&str>>("deduplication_key"), Some("key"));
    assert_eq!(row.get::<_, serde_json::Value>("payload"), payload);
    assert_eq!(row.get::<_, i32>("attempt_count"), 1);
    assert_eq!(row.get::<_, Option<serde_json::Value>>("headers"), Some(headers));
    assert!(row.get::<_, SystemTime>("created_at") <= row.get::<_, SystemTime>("locked_at"));
    assert_eq!(session.value::<SystemTime>("SELECT available_at FROM outbox_event", &[]), due);
}

#[test]
fn every_parameter_can_be_named_and_left_untyped() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.run(
        "SELECT outbox_enqueue(payload => '{}', event_type => 'order.created', aggregate_type => 'order',
                               aggregate_id => '00000000-0000-0000-0000-000000000001');
         SELECT outbox_enqueue(tenant_id => NULL, aggregate_type => 'order', event_type => 'order.created',
                               aggregate_id => '00000000-0000-0000-0000-000000000001', deduplication_key => 'k',
                               payload => 'null', available_at => '2020-01-01 00:00Z', headers => '{}')",
    );
    let claimed: Vec<Uuid> =
        session.column("SELECT id FROM outbox_claim_batch(batch_size => 5, worker_id => 'w')", &[]);
    assert_eq!(claimed.len(), 2);
    session.run(&format!(
        "SELECT outbox_complete(worker_id => 'w', event_id => '{}', attempt => '1')",
        claimed[0]
    ));
    let status: String = session.value(
        &format!(
            "SELECT outbox_fail(worker_id => 'w', event_id => '{}', error_code => 'x', next_attempt => NULL,
                                max_attempts => '1', attempt => '1')",
            claimed[1]
        ),
        &[],
    );
    assert_eq!(status, "dead");
}

#[test]
fn prepared_statements_work_over_twenty_executions_and_more() {
    let database = Database::with_extension();
    let mut session = database.session();
    let enqueue = session
        .prepare("SELECT outbox_enqueue(NULL, 'order', $1, 'order.created', $2, $3)")
        .expect("it is prepared");
    let claim = session.prepare("SELECT id FROM outbox_claim_batch($1, $2)").expect("it is prepared");
    let complete = session.prepare("SELECT outbox_complete($1, $2, $3)").expect("it is prepared");
    for n in 0..40 {
        let key = format!("key {n}");
        let row = session.query_one(&enqueue, &[&Uuid::new_v4(), &key, &json!(n)]).expect("it is enqueued");
        let id: Uuid = row.get(0);
        let claimed = session.query(&claim, &[&"w", &10]).expect("it is claimed");
        assert_eq!(claimed.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>(), [id]);
        session.execute(&complete, &[&id, &"w", &1]).expect("it is completed");
    }
    assert_eq!(session.count("completed"), 40);
}

#[test]
fn a_claim_that_is_fetched_through_a_cursor_leases_its_whole_batch() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(20);
    session.run("BEGIN; DECLARE c CURSOR FOR SELECT id FROM outbox_claim_batch('w', 10)");
    let fetched: Vec<Uuid> = session.column("FETCH 3 FROM c", &[]);
    let rest: Vec<Uuid> = session.column("FETCH ALL FROM c", &[]);
    session.run("COMMIT");
    assert_eq!((fetched.len(), rest.len()), (3, 7));
    assert_eq!(session.count("processing"), 10);
}

#[test]
fn a_common_table_expression_claims_and_completes_in_one_statement() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(5);
    let payloads: Vec<serde_json::Value> = session.column(
        "WITH claimed AS MATERIALIZED (SELECT * FROM outbox_claim_batch('w', 3)),
              completed AS MATERIALIZED (SELECT payload, outbox_complete(id, 'w', attempt_count) FROM claimed)
         SELECT payload FROM completed",
        &[],
    );
    assert_eq!(payloads, [json!(1), json!(2), json!(3)]);
    assert_eq!(session.count("completed"), 3);
}

#[test]
fn expanding_the_claim_in_the_select_list_calls_it_once_and_not_once_a_column() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(30);
    // The planner evaluates equal set-returning calls of a select list together; of a function that returned one
    // row it would make a call for each of the eleven columns.
    session.run("SELECT (outbox_claim_batch('w', 2)).*");
    assert_eq!(session.count("processing"), 2);
}

#[test]
fn a_lateral_join_calls_the_claim_once_a_row() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(30);
    let claimed: Vec<Uuid> = session.column(
        "SELECT c.id FROM generate_series(1, 4) AS n CROSS JOIN LATERAL outbox_claim_batch('w' || n, 2) AS c",
        &[],
    );
    assert_eq!(claimed.len(), 8);
}

#[test]
fn a_claim_may_stop_before_its_rows_are_read() {
    let database = Database::with_extension();
    let mut session = database.session();
    session.enqueue_many(20);
    let first: Vec<Uuid> = session.column("SELECT id FROM outbox_claim_batch('w', 10) LIMIT 1", &[]);
    assert_eq!(first.len(), 1);
    // The others are leased all the same: a LIMIT outside the call limits what is shown.
    assert_eq!(session.count("processing"), 10);
}

#[test]
fn a_copy_of_events_gets_ids_and_hashes() {
    use std::io::Write;
    let database = Database::with_extension();
    let mut session = database.session();
    let mut copy = session
        .copy_in(
            "COPY outbox_event (aggregate_type, aggregate_id, event_type, payload) FROM STDIN (FORMAT csv)",
        )
        .expect("COPY begins");
    for n in 0..100 {
        writeln!(copy, "order,{},order.created,\"{{\"\"n\"\": {n}.0}}\"", Uuid::new_v4()).expect("a row");
    }
    assert_eq!(copy.finish().expect("COPY ends"), 100);
    let wrong: i64 = session
        .value("SELECT count(*) FROM outbox_event WHERE payload_hash <> outbox_payload_hash(payload)", &[]);
    assert_eq!(wrong, 0);
    assert_eq!(session.claim("w", 200).len(), 100);
}

#[test]
fn a_cancelled_call_leaves_nothing_behind_and_the_session_goes_on() {
    use support::waiting::HeldUp;
    let database = Database::with_extension();
    let (mut holder, mut caller) = (database.session(), database.session());
    let id = holder.enqueue(&Event::default());
    caller.claim_one("w");
    holder.run("BEGIN; SELECT FROM outbox_event FOR UPDATE");
    let backend = caller.backend();
    let call = HeldUp::start(&database, caller, move |session| session.try_complete(id, "w", None));
    holder.run(&format!("SELECT pg_cancel_backend({backend})"));
    let (mut caller, answer) = call.answer();
    assert_eq!(support::refusal::Refusal::expect(answer, "a cancelled call").sqlstate, "57014");
    holder.run("COMMIT");
    assert_eq!(caller.status(id), "processing");
    caller.complete(id, "w");
    assert_eq!(caller.claim("w", 1), []);
}
