//! SQL in few words: a test wants a value, a column or a refusal, and stops at anything else.

use crate::refusal::Refusal;
use postgres::Client;
use postgres::types::{FromSqlOwned, ToSql};

pub type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

pub trait Sql {
    /// Runs statements that must succeed.
    fn run(&mut self, sql: &str);

    /// The one value that a query returns.
    fn value<T: FromSqlOwned>(&mut self, sql: &str, parameters: Parameters) -> T;

    /// The first column of all rows that a query returns.
    fn column<T: FromSqlOwned>(&mut self, sql: &str, parameters: Parameters) -> Vec<T>;

    /// The error that a statement must end with.
    fn refused(&mut self, sql: &str, parameters: Parameters) -> Refusal;

    /// The process id of the backend.
    fn backend(&mut self) -> i32 {
        self.value("SELECT pg_backend_pid()", &[])
    }
}

impl Sql for Client {
    fn run(&mut self, sql: &str) {
        self.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn value<T: FromSqlOwned>(&mut self, sql: &str, parameters: Parameters) -> T {
        self.query_one(sql, parameters).unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    fn column<T: FromSqlOwned>(&mut self, sql: &str, parameters: Parameters) -> Vec<T> {
        let rows = self.query(sql, parameters).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn refused(&mut self, sql: &str, parameters: Parameters) -> Refusal {
        Refusal::expect(self.query(sql, parameters), sql)
    }
}
