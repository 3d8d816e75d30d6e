//! A steady flow: events come one by one, wait a little, are claimed and completed. What it writes to the
//! WAL, and how many of the claims are HOT updates.

use postgres::{Client, Statement};
use serde::Deserialize;

use crate::arena::{Arena, Fill};
use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Outcome};
use crate::meter;
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::system::Worker;
use crate::workload::{self, Case, Sized};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steady {
    pub contestants: Vec<String>,
    synchronous_commit: Commit,
    batch: i32,
    /// How many wait at any time.
    backlog: Sized,
    /// Events in one window; there is one to warm up and one for each run.
    cases: Vec<Case>,
    chart: String,
}

impl Steady {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        for case in workload::measured(&self.cases, bench.quick) {
            for arena in bench.arenas(&self.contestants, self.synchronous_commit, findings)? {
                let title = arena.system.title.clone();
                bench.progress.at(&format!("{title}, {}", payload::label(case.payload)));
                self.contestant(bench, case, arena, findings)?;
            }
        }
        Ok(())
    }

    fn contestant(
        &self,
        bench: &Bench,
        case: Case,
        mut arena: Arena,
        findings: &mut Findings,
    ) -> Outcome<()> {
        let (text, events) = (payload::json(case.payload, 1), case.events(bench.quick));
        arena.fill(Fill::Waiting, self.backlog.of(bench.quick), &text, self.batch)?;
        let mut flow = Flow::new(&arena, self.batch, text)?;
        flow.window(&mut arena, events)?;
        arena.vacuum()?;
        let before = updates(&mut arena, &mut flow)?;
        let name = arena.system.name.clone();
        for _ in 0..RUNS {
            let mut watcher = arena.connect()?;
            // The system's maintenance belongs to the flow.
            let spent = meter::measure(&mut watcher, || {
                flow.window(&mut arena, events)?;
                arena.vacuum()
            })?;
            findings.add(&name, Measure::Wal, case.payload, spent.wal_an_event(events));
            findings.add(&name, Measure::Time, case.payload, spent.micros_an_event(events));
        }
        let after = updates(&mut arena, &mut flow)?;
        // Completing changes the claim index and is never HOT, so what was HOT were claims.
        let hot = (after - before) as f64 / (events * RUNS as u64) as f64;
        findings.add(&name, Measure::Hot, case.payload, hot);
        self.draw(&arena.system.title, &name, case, findings);
        Ok(())
    }

    fn draw(&self, title: &str, name: &str, case: Case, findings: &mut Findings) {
        if let Some(summary) = crate::statistics::summary(findings.figures(name, Measure::Wal, case.payload))
        {
            findings.point(&self.chart, title, case.payload as f64, summary.median);
        }
    }
}

/// HOT updates so far, as the statistics see them.
fn updates(arena: &mut Arena, flow: &mut Flow) -> Outcome<i64> {
    flow.publish()?;
    let query = "SELECT coalesce(sum(n_tup_hot_upd), 0)::bigint FROM pg_stat_user_tables
                 WHERE relname IN ('outbox_event', 'q_bench')";
    Ok(arena.control.query_one(query, &[]).doing(|| "asking for HOT updates".into())?.try_get(0)?)
}

struct Flow {
    producer: Client,
    enqueue: Statement,
    worker: Box<dyn Worker>,
    batch: i32,
    payload: String,
}

impl Flow {
    fn new(arena: &Arena, batch: i32, payload: String) -> Outcome<Self> {
        let mut producer = arena.connect()?;
        let enqueue = producer.prepare(&arena.system.sql("enqueue.sql")?).doing(|| "preparing".into())?;
        Ok(Self { producer, enqueue, worker: arena.worker("worker", batch)?, batch, payload })
    }

    fn window(&mut self, arena: &mut Arena, events: u64) -> Outcome<()> {
        for _ in 0..events / self.batch as u64 {
            for _ in 0..self.batch {
                self.producer.query(&self.enqueue, &[&self.payload]).doing(|| "enqueueing".into())?;
            }
            arena.tick()?;
            self.worker.step()?;
        }
        Ok(())
    }

    /// A backend hands in its statistics when it likes, unless it is told to.
    fn publish(&mut self) -> Outcome<()> {
        let session = self.worker.session();
        session.batch_execute("SELECT pg_stat_force_next_flush()").doing(|| "handing in statistics".into())
    }
}
