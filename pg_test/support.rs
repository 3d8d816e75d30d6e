//! What the tests share: SQL in few words, an error with all its parts, events to start from, and a clock
//! that stands still.

use crate::clock::test_clock;
use crate::instant::Instant;
use pgrx::prelude::*;
use pgrx::{FromDatum, IntoDatum};
use std::collections::BTreeMap;

/// Runs statements that must succeed.
pub fn run(sql: &str) {
    Spi::run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The value of an expression, unless it is NULL.
pub fn maybe<T: FromDatum + IntoDatum>(expression: &str) -> Option<T> {
    Spi::get_one(&format!("SELECT {expression}")).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// The value of an expression that must not be NULL.
pub fn one<T: FromDatum + IntoDatum>(expression: &str) -> T {
    maybe(expression).unwrap_or_else(|| panic!("{expression} is NULL"))
}

/// Whether a condition holds.
pub fn holds(condition: &str) -> bool {
    one(condition)
}

/// The one column of all rows that a query returns, as text.
pub fn texts(query: &str) -> Vec<String> {
    one(&format!("coalesce(array_agg(t::text), '{{}}') FROM ({query}) AS q (t)"))
}

/// How many events there are.
pub fn events() -> i64 {
    one("count(*) FROM outbox_event")
}

/// A literal of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// An error as a client sees it; parts that are missing are empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl Refusal {
    /// Whether any part of it contains the text.
    pub fn mentions(&self, text: &str) -> bool {
        [&self.message, &self.detail, &self.hint].into_iter().any(|part| part.contains(text))
    }
}

/// The error that a statement must end with. It is caught, so that the transaction goes on.
pub fn refused(statement: &str) -> Refusal {
    if holds("to_regprocedure('pg_temp.refusal(text)') IS NULL") {
        run("CREATE FUNCTION pg_temp.refusal(statement text) RETURNS text[] LANGUAGE plpgsql AS $$
             DECLARE state text; message text; detail text; hint text;
             BEGIN
                 EXECUTE statement;
                 RETURN NULL;
             EXCEPTION WHEN OTHERS THEN
                 GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                     detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
                 RETURN ARRAY[state, message, detail, hint];
             END $$");
    }
    let parts: Option<Vec<String>> = maybe(&format!("pg_temp.refusal({})", quoted(statement)));
    let parts = parts.unwrap_or_else(|| panic!("{statement} must be refused"));
    let [sqlstate, message, detail, hint] = parts.try_into().expect("the four parts of an error");
    Refusal { sqlstate, message, detail, hint }
}

/// Checks that an expression ends with an error of ours: SQLSTATE, a message that names the parameter, and
/// a HINT.
pub fn assert_refused(expression: &str, sqlstate: &str, parameter: &str) -> Refusal {
    let refusal = refused(&format!("SELECT {expression}"));
    assert_eq!(refusal.sqlstate, sqlstate, "{expression}: {refusal:?}");
    assert!(refusal.message.contains(parameter), "{expression}: {refusal:?}");
    assert!(!refusal.hint.is_empty(), "{expression}: {refusal:?}");
    refusal
}

/// The clock of this backend, stopped for as long as this lives.
pub struct Clock(String);

impl Clock {
    /// Stops it at noon of a day that is far from the real one.
    pub fn stopped() -> Self {
        let mut clock = Self(String::new());
        clock.set("2030-01-01T12:00:00+00:00");
        clock
    }

    /// Sets it forward (or back), and returns the moment at which it stands.
    pub fn advance(&mut self, interval: &str) -> String {
        self.set(&self.after(interval));
        self.now()
    }

    /// The moment at which it stands, as jsonb shows it.
    pub fn now(&self) -> String {
        self.after("0")
    }

    /// The moment that comes an interval later.
    pub fn after(&self, interval: &str) -> String {
        one(&format!("to_jsonb(timestamptz '{}' + interval '{interval}') #>> '{{}}'", self.0))
    }

    fn set(&mut self, moment: &str) {
        let since = format!("timestamptz '{moment}' - timestamptz '2000-01-01 00:00Z'");
        let micros: i64 = one(&format!("(extract(epoch FROM {since}) * 1000000)::bigint"));
        test_clock::freeze(Some(Instant::from_micros(micros)));
        self.0 = moment.to_owned();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        test_clock::freeze(None);
    }
}

/// Names and values, in which those given take the place of the usual ones of the same name.
pub fn instead<'a>(usual: &[(&'a str, &'a str)], given: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let replaced = |name: &str| given.iter().any(|(given, _)| *given == name);
    usual.iter().filter(|(name, _)| !replaced(name)).chain(given).copied().collect()
}

const USUAL: [(&str, &str); 4] = [
    ("aggregate_type", "'order'"),
    ("aggregate_id", "'0dd00000-0000-4000-8000-000000000001'"),
    ("event_type", "'order.created'"),
    ("payload", r#"'{"number": 1}'"#),
];

/// A call of `outbox_enqueue` in which every required argument has a value.
pub fn enqueue_call(arguments: &[(&str, &str)]) -> String {
    let named: Vec<_> =
        instead(&USUAL, arguments).iter().map(|(name, value)| format!("{name} => {value}")).collect();
    format!("outbox_enqueue({})", named.join(", "))
}

/// Enqueues an event, and returns its id.
pub fn enqueue(arguments: &[(&str, &str)]) -> String {
    one(&format!("{}::text", enqueue_call(arguments)))
}

/// An INSERT by hand in which every required column has a value.
pub fn insert_statement(columns: &[(&str, &str)]) -> String {
    let (names, values): (Vec<_>, Vec<_>) = instead(&USUAL, columns).into_iter().unzip();
    format!("INSERT INTO outbox_event ({}) VALUES ({})", names.join(", "), values.join(", "))
}

/// Inserts an event by hand, and returns its id.
pub fn insert(columns: &[(&str, &str)]) -> String {
    let statement = format!("{} RETURNING id::text", insert_statement(columns));
    Spi::get_one(&statement)
        .unwrap_or_else(|error| panic!("{statement}: {error}"))
        .unwrap_or_else(|| panic!("{statement} inserted nothing"))
}

/// Changes an event by hand.
pub fn update(id: &str, assignments: &str) {
    run(&update_statement(id, assignments));
}

/// An UPDATE of an event by hand.
pub fn update_statement(id: &str, assignments: &str) -> String {
    format!("UPDATE outbox_event SET {assignments} WHERE id = '{id}'")
}

/// Claims, and returns the ids in the order in which they come. A sweep is due, so that nothing is passed
/// over: pg_test/cursor.rs sees to that.
pub fn claim(arguments: &str) -> Vec<String> {
    test_clock::skip(std::time::Duration::from_secs(3_600));
    claim_at_once(arguments)
}

/// Claims as soon after the last claim as it is.
pub fn claim_at_once(arguments: &str) -> Vec<String> {
    texts(&format!("SELECT id FROM outbox_claim_batch({arguments})"))
}

/// The states that an event can be found in, by the way that led there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    NeverClaimed,
    Leased,
    Failed,
    Completed,
    Dead,
}

impl State {
    pub const ALL: [Self; 5] = [Self::NeverClaimed, Self::Leased, Self::Failed, Self::Completed, Self::Dead];
}

/// An event in a state, the only one in the outbox. Its worker is `w`, its first attempt began and ended
/// now, and a failed one is due again at once.
pub fn only_event(state: State) -> String {
    run("DELETE FROM outbox_event");
    let id = enqueue(&[]);
    if state != State::NeverClaimed {
        assert_eq!(claim("'w'"), [id.as_str()]);
    }
    let fail = |max_attempts: i32| {
        let call = format!("outbox_fail('{id}', 'w', 'trouble', {max_attempts}, '2000-01-01')");
        one::<String>(&call)
    };
    match state {
        State::NeverClaimed | State::Leased => {}
        State::Failed => assert_eq!(fail(9), "pending"),
        State::Completed => run(&format!("SELECT outbox_complete('{id}', 'w')")),
        State::Dead => assert_eq!(fail(0), "dead"),
    }
    id
}

/// The values of a row by the names of its columns, as jsonb shows them; `NULL` where there is none.
pub type Columns = BTreeMap<String, String>;

/// A row with these values only.
pub fn values<const N: usize>(values: [(&str, &str); N]) -> Columns {
    values.map(|(column, value)| (column.to_owned(), value.to_owned())).into()
}

/// The values of the one row of a query, by the row's name in it.
pub fn row(name: &str, from: &str) -> Columns {
    let pair = "ARRAY[key, coalesce(value, 'NULL')]";
    let flat: Vec<String> = one(&format!("array_agg({pair}) FROM {from}, jsonb_each_text(to_jsonb({name}))"));
    flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// All columns of an event.
pub fn columns(id: &str) -> Columns {
    row("e", &format!("(SELECT * FROM outbox_event WHERE id = '{id}') AS e"))
}

/// The columns that are not what they were, with their new values.
pub fn changes(before: &Columns, id: &str) -> Columns {
    columns(id).into_iter().filter(|(name, value)| before.get(name) != Some(value)).collect()
}
