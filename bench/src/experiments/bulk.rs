//! Many events at once, from a client. What is sent is made before the clock starts; each call is a transaction.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use postgres::{Client, Statement};
use serde::Deserialize;
use uuid::Uuid;

use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::{self, Case};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    pub system: String,
    synchronous_commit: Commit,
    ways: Vec<Way>,
    /// How many events a call brings.
    calls: Vec<u64>,
    cases: Vec<Case>,
}

/// A file in `workloads/bulk/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    sent: Sent,
}

/// How the events are sent.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sent {
    /// As a JSON array, which is a parameter; the statement counts what was enqueued.
    Json,
    /// As literals, in the statement's place for `{rows}`.
    Rows,
    /// As lines of COPY's text format.
    Lines,
}

/// Different payloads, so that none of them is the one that is always in the cache.
const PAYLOADS: u64 = 64;

impl Bulk {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let Some(mut arena) = bench.arena(&self.system, self.synchronous_commit, findings)? else {
            return Ok(());
        };
        let mut client = arena.connect()?;
        for case in workload::measured(&self.cases, bench.quick) {
            for &size in &self.calls {
                let events = Events::new(case.payload, size);
                let mut calls = Vec::new();
                for way in &self.ways {
                    let series = format!("{}, {size}", way.name);
                    calls.push((series, Call::new(way, bench, &mut client, &events)?));
                }
                // The first run warms up.
                for run in 0..=RUNS {
                    for (series, call) in &calls {
                        let at = format!("{series} at once, {}: run {run}", payload::label(case.payload));
                        bench.progress.at(&at);
                        arena.empty()?;
                        let began = Instant::now();
                        let times = (case.events(bench.quick) / size).max(1);
                        (0..times).try_for_each(|_| call.send(&mut client, size))?;
                        let micros = began.elapsed().as_secs_f64() * 1e6 / (times * size) as f64;
                        if run > 0 {
                            findings.add(series, Measure::Time, case.payload, micros);
                        }
                    }
                    calls.rotate_left(1);
                }
            }
        }
        Ok(())
    }
}

/// What is enqueued: an aggregate of its own each, and a payload.
struct Events {
    payloads: Vec<String>,
    aggregates: Vec<Uuid>,
}

impl Events {
    fn new(bytes: usize, count: u64) -> Self {
        Self {
            payloads: (0..PAYLOADS).map(|seed| payload::json(bytes, seed)).collect(),
            aggregates: (0..count).map(|_| Uuid::new_v4()).collect(),
        }
    }

    /// All of them as one text, each by `write` and with something between two of them. The payloads need no
    /// escapes: they have neither quotes of SQL nor backslashes.
    fn text(&self, between: &str, write: impl Fn(&Uuid, &str) -> String) -> String {
        let events = self.aggregates.iter().zip(self.payloads.iter().cycle());
        let mut text = String::new();
        for (number, (aggregate, payload)) in events.enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{}", if number > 0 { between } else { "" }, write(aggregate, payload));
        }
        text
    }

    fn json(&self) -> String {
        let elements = self.text(",", |aggregate, payload| {
            format!(
                r#"{{"aggregate_type":"order","aggregate_id":"{aggregate}","event_type":"order.created","payload":{payload}}}"#
            )
        });
        format!("[{elements}]")
    }

    fn rows(&self) -> String {
        self.text(", ", |aggregate, payload| {
            format!("('order', '{aggregate}', 'order.created', '{payload}')")
        })
    }

    fn lines(&self) -> String {
        self.text("", |aggregate, payload| format!("order\t{aggregate}\torder.created\t{payload}\n"))
    }
}

/// A call that is ready to be sent.
enum Call {
    Json(Statement, String),
    Rows(String),
    Lines(Statement, String),
}

impl Call {
    fn new(way: &Way, bench: &Bench, client: &mut Client, events: &Events) -> Outcome<Self> {
        let sql = bench.sql("bulk", &way.name)?;
        let mut prepare = || client.prepare(&sql).doing(|| format!("preparing {}", way.name));
        Ok(match way.sent {
            Sent::Json => Self::Json(prepare()?, events.json()),
            Sent::Rows => Self::Rows(sql.replace("{rows}", &events.rows())),
            Sent::Lines => Self::Lines(prepare()?, events.lines()),
        })
    }

    fn send(&self, client: &mut Client, events: u64) -> Outcome<()> {
        let enqueued = match self {
            Self::Json(statement, json) => client
                .query_one(statement, &[json])
                .and_then(|row| row.try_get::<_, i64>(0))
                .doing(|| "enqueueing".into())?
                .cast_unsigned(),
            Self::Rows(sql) => {
                client.batch_execute(sql).doing(|| "inserting".into())?;
                events
            }
            Self::Lines(statement, lines) => {
                let mut writer = client.copy_in(statement).doing(|| "copying".into())?;
                writer.write_all(lines.as_bytes()).doing(|| "copying".into())?;
                writer.finish().doing(|| "copying".into())?
            }
        };
        if enqueued == events {
            Ok(())
        } else {
            Err(Failure::new(format!("{enqueued} of {events} events were stored")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_as_each_way_takes_them() {
        let events = Events::new(300, 3);
        let array: serde_json::Value = serde_json::from_str(&events.json()).unwrap();
        assert_eq!(array.as_array().map(Vec::len), Some(3));
        assert_eq!(array[0]["aggregate_id"], events.aggregates[0].to_string());
        assert_eq!(
            array[2]["payload"],
            serde_json::from_str::<serde_json::Value>(&events.payloads[2]).unwrap()
        );
        assert_eq!(events.lines().lines().count(), 3);
        assert_eq!(events.rows().matches("'order.created'").count(), 3);
        assert!(events.payloads.iter().all(|payload| !payload.contains(['\'', '\\'])));
    }
}
