//! Measures a piece of work: its time, and the WAL that the server wrote meanwhile.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::failure::{Doing, Outcome};

#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub time: Duration,
    pub wal: i64,
}

impl Spent {
    pub fn micros_an_event(&self, events: u64) -> f64 {
        self.time.as_secs_f64() * 1e6 / events as f64
    }

    pub fn wal_an_event(&self, events: u64) -> f64 {
        self.wal as f64 / events as f64
    }
}

/// Measures what `work` does; `observer` is a session that takes no part in it.
pub fn measure(observer: &mut Client, work: impl FnOnce() -> Outcome<()>) -> Outcome<Spent> {
    let before = wal_position(observer)?;
    let began = Instant::now();
    work()?;
    let time = began.elapsed();
    Ok(Spent { time, wal: wal_position(observer)? - before })
}

fn wal_position(observer: &mut Client) -> Outcome<i64> {
    let query = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
    Ok(observer.query_one(query, &[]).doing(|| "asking for the WAL's position".into())?.try_get(0)?)
}
