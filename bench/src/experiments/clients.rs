//! Several clients that commit after each statement.

use std::sync::Barrier;
use std::time::Instant;

use postgres::types::ToSql;
use postgres::{Client, Statement};
use serde::Deserialize;
use uuid::Uuid;

use crate::arena::Arena;
use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::{self, Case};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    pub system: String,
    synchronous_commit: Commit,
    clients: usize,
    /// Files in `workloads/statements/`. Their parameters: payload, aggregate id, and, where they are used,
    /// an id and the payload's hash.
    statements: Vec<String>,
    cases: Vec<Case>,
}

impl Clients {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let Some(mut arena) = bench.arena(&self.system, self.synchronous_commit, findings)? else {
            return Ok(());
        };
        let mut crews = Vec::new();
        for name in &self.statements {
            crews.push((name, self.crew(bench, &arena, name)?));
        }
        for case in workload::measured(&self.cases, bench.quick) {
            let sent = Sent::new(&mut arena, case.payload)?;
            let each = case.events(bench.quick) / self.clients as u64;
            for run in 1..=RUNS {
                for (name, crew) in &mut crews {
                    bench.progress.at(&format!("{name}, {}: run {run}", payload::label(case.payload)));
                    arena.empty()?;
                    let micros = time(crew, &sent, each)?;
                    findings.add(name, Measure::Time, case.payload, micros);
                }
            }
        }
        Ok(())
    }

    fn crew(&self, bench: &Bench, arena: &Arena, name: &str) -> Outcome<Vec<Member>> {
        let sql = bench.sql("statements", name)?;
        let member = |_| {
            let mut client = arena.connect()?;
            let statement = client.prepare(&sql).doing(|| format!("preparing {name}"))?;
            Ok(Member { client, statement })
        };
        (0..self.clients).map(member).collect()
    }
}

struct Member {
    client: Client,
    statement: Statement,
}

/// What is sent with each statement.
struct Sent {
    payload: String,
    hash: String,
}

impl Sent {
    fn new(arena: &mut Arena, bytes: usize) -> Outcome<Self> {
        let payload = payload::json(bytes, 1);
        let row = arena.control.query_one("SELECT outbox_payload_hash($1::text::jsonb)", &[&payload]);
        let hash = row.doing(|| "hashing a payload".into())?.try_get(0)?;
        Ok(Self { payload, hash })
    }
}

/// Microseconds that one more event took, all clients together.
fn time(crew: &mut [Member], sent: &Sent, each: u64) -> Outcome<f64> {
    let barrier = Barrier::new(crew.len() + 1);
    let count = crew.len() as f64;
    let (began, results) = std::thread::scope(|scope| {
        let threads: Vec<_> = crew
            .iter_mut()
            .map(|member| {
                scope.spawn(|| {
                    barrier.wait();
                    member.send(sent, each)
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        (began, threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    let seconds = began.elapsed().as_secs_f64();
    for result in results {
        result.map_err(|_| Failure::new("a client panicked"))??;
    }
    Ok(seconds * 1e6 / (each as f64 * count))
}

impl Member {
    fn send(&mut self, sent: &Sent, events: u64) -> Outcome<()> {
        for _ in 0..events {
            let (aggregate, id) = (Uuid::new_v4(), Uuid::now_v7());
            let all: [&(dyn ToSql + Sync); 4] = [&sent.payload, &aggregate, &id, &sent.hash];
            let taken = self.statement.params().len();
            self.client.query(&self.statement, &all[..taken]).doing(|| "enqueueing".into())?;
        }
        Ok(())
    }
}
