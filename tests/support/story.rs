//! The whole life of an event: whether everything works in a session, wherever the extension lies and whatever
//! is in the way.

use crate::refusal::Refusal;
use postgres::Client;
use postgres::types::FromSqlOwned;
use uuid::Uuid;

use crate::sql::Parameters;

/// A session, and what to write before a function's name: `app.`, or nothing.
///
/// The statements use no operator and no type name that a search_path could lead astray: what is tested is
/// the extension and not the test.
pub struct Story<'a> {
    session: &'a mut Client,
    prefix: &'a str,
}

/// Enqueues, deduplicates, is refused, claims, fails, claims again, completes, is refused; in an empty queue.
pub fn live_through(session: &mut Client, prefix: &str) {
    let mut story = Story { session, prefix };
    let id = story.enqueue("1").expect("enqueue");
    assert_eq!(story.enqueue("1").expect("enqueue again"), id);
    assert_eq!(Refusal::expect(story.enqueue("2"), "another payload").sqlstate, "23505");
    assert_eq!(story.claim(), [(id, 1)]);
    assert_eq!(story.fail(id).expect("fail"), "pending");
    assert_eq!(story.claim(), [(id, 2)]);
    assert_eq!(story.claim(), []);
    story.complete(id).expect("complete");
    let again = Refusal::expect(story.complete(id), "a second complete");
    assert_eq!(again.sqlstate, "55000");
    story.forget();
}

/// What an operator does, in an outbox without events, which is one afterwards: two events die, are seen, replayed
/// and completed, and are purged.
pub fn operate(session: &mut Client, prefix: &str) {
    let mut story = Story { session, prefix };
    let id = story.enqueue("1").expect("enqueue");
    for replay in [
        "SELECT {}outbox_replay()",
        "SELECT {}outbox_replay(NULL, 'order.created')",
        "SELECT {}outbox_replay(ARRAY(SELECT id FROM {}outbox_event), 'order.created')",
    ] {
        assert_eq!(story.claim().len(), 1);
        assert_eq!(story.bury(id), "dead");
        assert_eq!(story.number("SELECT dead FROM {}outbox_stats"), 1);
        assert_eq!(story.number(replay), 1);
        assert_eq!(story.number("SELECT ready FROM {}outbox_stats"), 1);
    }
    assert_eq!(story.claim().len(), 1);
    story.complete(id).expect("complete");
    assert_eq!(story.number("SELECT {}outbox_purge('0')"), 1);
    assert_ne!(story.enqueue("2").expect("its key is free"), id);
    let id = story.claim()[0].0;
    assert_eq!(story.bury(id), "dead");
    assert_eq!(story.number("SELECT {}outbox_purge('0', statuses => '{completed,dead}')"), 1);
}

impl Story<'_> {
    fn bury(&mut self, id: Uuid) -> String {
        self.ask("SELECT {}outbox_fail($1, 'w', 'oops', 0)", &[&id]).expect("fail")
    }

    fn number(&mut self, sql: &str) -> i64 {
        self.ask(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    fn enqueue(&mut self, payload: &str) -> Result<Uuid, postgres::Error> {
        self.ask(
            "SELECT {}outbox_enqueue(NULL, 'order', $1, 'order.created', 'story',
                                     $2::pg_catalog.text::pg_catalog.jsonb)",
            &[&Uuid::from_u128(7), &payload],
        )
    }

    fn claim(&mut self) -> Vec<(Uuid, i32)> {
        let sql = "SELECT id, attempt_count FROM {}outbox_claim_batch('w', 10)".replace("{}", self.prefix);
        let rows = self.session.query(&sql, &[]).unwrap_or_else(|error| panic!("claim: {error:?}"));
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    fn complete(&mut self, id: Uuid) -> Result<String, postgres::Error> {
        self.ask("SELECT {}outbox_complete($1, 'w')::pg_catalog.text", &[&id])
    }

    fn fail(&mut self, id: Uuid) -> Result<String, postgres::Error> {
        self.ask("SELECT {}outbox_fail($1, 'w', 'oops', 5, pg_catalog.clock_timestamp())", &[&id])
    }

    /// Takes the key away from the next story in this database.
    fn forget(&mut self) {
        let sql = "UPDATE {}outbox_event SET deduplication_key = NULL".replace("{}", self.prefix);
        self.session.execute(&sql, &[]).unwrap_or_else(|error| panic!("forget: {error:?}"));
    }

    fn ask<T: FromSqlOwned>(&mut self, sql: &str, parameters: Parameters) -> Result<T, postgres::Error> {
        Ok(self.session.query_one(&sql.replace("{}", self.prefix), parameters)?.get(0))
    }
}
