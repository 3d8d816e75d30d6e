//! Does it matter how many events wait, and how many were ever completed? One database of each system grows,
//! first in history and then in backlog, and is measured at each stage; at the end it runs against an empty
//! one of the same system.

use std::time::{Duration, Instant};

use postgres::{Client, Statement};
use serde::Deserialize;

use crate::arena::{Arena, Fill, side_by_side};
use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::statistics;
use crate::system::Worker;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub contestants: Vec<String>,
    synchronous_commit: Commit,
    batch: i32,
    payload: usize,
    /// Completed events carry a smaller payload: what counts is how many they are.
    history_payload: usize,
    /// Stages of the history, and then of the backlog.
    history: Vec<Sized>,
    backlog: Vec<Sized>,
    /// Events that are moved for one figure, unless that takes longer than so many milliseconds.
    events: Sized,
    milliseconds: Sized,
    /// The stage of the backlog at which a system that says what waits (`stats.sql`) is asked, beside a database
    /// with the same backlog and no history.
    stats: Sized,
    history_chart: String,
    backlog_chart: String,
}

/// A system's growing database, and its worker.
struct Grown {
    arena: Arena,
    worker: Box<dyn Worker>,
    completed: u64,
    waiting: u64,
}

impl Size {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let mut grown = Vec::new();
        for arena in bench.arenas(&self.contestants, self.synchronous_commit, findings)? {
            let worker = arena.worker("worker", self.batch)?;
            grown.push(Grown { arena, worker, completed: 0, waiting: 0 });
        }
        for stage in &self.history {
            self.history_stage(bench, stage.of(bench.quick), &mut grown, findings)?;
        }
        for stage in &self.backlog {
            self.backlog_stage(bench, stage.of(bench.quick), &mut grown, findings)?;
        }
        for grown in &mut grown {
            self.against_empty(bench, grown, findings)?;
        }
        Ok(())
    }

    fn history_stage(
        &self,
        bench: &Bench,
        completed: u64,
        grown: &mut [Grown],
        findings: &mut Findings,
    ) -> Outcome<()> {
        bench.progress.at(&format!("up to {completed} completed events"));
        let (text, batch) = (payload::json(self.history_payload, 1), self.batch);
        side_by_side(grown, |grown| {
            let more = completed.saturating_sub(grown.completed);
            grown.completed += more;
            grown.arena.fill(Fill::History, more, &text, batch)?;
            grown.arena.vacuum()
        })?;
        for grown in grown {
            let micros = self.typical(bench, || self.cost_of_fresh(bench, grown))?;
            findings.point(&self.history_chart, &grown.arena.system.title, completed as f64, micros);
        }
        Ok(())
    }

    fn backlog_stage(
        &self,
        bench: &Bench,
        waiting: u64,
        grown: &mut [Grown],
        findings: &mut Findings,
    ) -> Outcome<()> {
        bench.progress.at(&format!("up to {waiting} waiting events"));
        side_by_side(grown, |grown| {
            self.top_up(grown, waiting)?;
            grown.arena.vacuum()
        })?;
        if waiting == self.stats.of(bench.quick) {
            for grown in &mut *grown {
                self.stats(bench, waiting, grown, findings)?;
            }
        }
        for grown in grown {
            let micros = self.typical(bench, || {
                self.top_up(grown, waiting)?;
                self.cost_of_backlog(bench, grown)
            })?;
            findings.point(&self.backlog_chart, &grown.arena.system.title, waiting as f64, micros);
        }
        Ok(())
    }

    fn stats(&self, bench: &Bench, waiting: u64, grown: &Grown, findings: &mut Findings) -> Outcome<()> {
        let system = &grown.arena.system;
        let (name, Some(sql)) = (&system.name, system.optional_sql("stats.sql")?) else { return Ok(()) };
        let Some(mut short) = bench.arena(name, self.synchronous_commit, findings)? else { return Ok(()) };
        short.fill(Fill::Waiting, waiting, &payload::json(self.payload, 1), self.batch)?;
        short.vacuum()?;
        let mut sides = [("with", Asked::new(&grown.arena, &sql)?), ("without", Asked::new(&short, &sql)?)];
        for run in 1..=RUNS {
            bench.progress.at(&format!("{}, asked what waits: run {run}", system.title));
            for (history, asked) in &mut sides {
                let series = format!("{name}, {history} history");
                findings.add(&series, Measure::Latency, self.payload, asked.milliseconds()?);
            }
        }
        Ok(())
    }

    /// Adds what is missing to so many waiting events.
    fn top_up(&self, grown: &mut Grown, waiting: u64) -> Outcome<()> {
        let more = waiting.saturating_sub(grown.waiting);
        grown.waiting += more;
        grown.arena.fill(Fill::Waiting, more, &payload::json(self.payload, 1), self.batch)
    }

    /// The median of three figures; the first, where one takes as long as it may.
    fn typical(&self, bench: &Bench, mut figure: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
        let limit = Duration::from_millis(self.milliseconds.of(bench.quick));
        let (began, mut figures) = (Instant::now(), Vec::new());
        while figures.is_empty() || figures.len() < 3 && began.elapsed() < limit {
            figures.push(figure()?);
        }
        Ok(statistics::summary(&figures).map_or(f64::NAN, |summary| summary.median))
    }

    /// Alternating: a bit of the grown backlog, and as much in an empty database.
    fn against_empty(&self, bench: &Bench, grown: &mut Grown, findings: &mut Findings) -> Outcome<()> {
        let name = grown.arena.system.name.clone();
        let Some(arena) = bench.arena(&name, self.synchronous_commit, findings)? else { return Ok(()) };
        let worker = arena.worker("worker", self.batch)?;
        let mut empty = Grown { arena, worker, completed: 0, waiting: 0 };
        for run in 1..=RUNS {
            bench.progress.at(&format!("{}, full and empty: run {run}", grown.arena.system.title));
            let full = self.cost_of_backlog(bench, grown)?;
            findings.add(&format!("{name}, full"), Measure::Time, self.payload, full);
            empty.arena.empty()?;
            let bare = self.cost_of_fresh(bench, &mut empty)?;
            findings.add(&format!("{name}, empty"), Measure::Time, self.payload, bare);
        }
        Ok(())
    }

    /// Microseconds an event, of events that are added for it and are all that wait.
    fn cost_of_fresh(&self, bench: &Bench, grown: &mut Grown) -> Outcome<f64> {
        let (warm_up, events) = (self.batch as u64, self.events.of(bench.quick));
        let text = payload::json(self.payload, 1);
        grown.arena.fill(Fill::Waiting, warm_up, &text, self.batch)?;
        grown.worker.drain(warm_up)?;
        grown.arena.fill(Fill::Waiting, events, &text, self.batch)?;
        self.cost(bench, grown)
    }

    /// Microseconds an event, of events from the backlog.
    fn cost_of_backlog(&self, bench: &Bench, grown: &mut Grown) -> Outcome<f64> {
        let moved = grown.worker.step()?;
        grown.waiting = grown.waiting.saturating_sub(moved);
        self.cost(bench, grown)
    }

    fn cost(&self, bench: &Bench, grown: &mut Grown) -> Outcome<f64> {
        let events = self.events.of(bench.quick);
        let limit = Duration::from_millis(self.milliseconds.of(bench.quick));
        let (began, mut moved) = (Instant::now(), 0);
        while moved < events && (moved == 0 || began.elapsed() < limit) {
            match grown.worker.step()? {
                0 => return Err(Failure::new(format!("only {moved} of {events} events were found"))),
                taken => moved += taken,
            }
        }
        grown.waiting = grown.waiting.saturating_sub(moved);
        Ok(began.elapsed().as_secs_f64() * 1e6 / moved as f64)
    }
}

/// A session that asks what waits.
struct Asked {
    client: Client,
    statement: Statement,
}

/// So many answers make one figure.
const ANSWERS: u32 = 10;

impl Asked {
    /// Its first answer, which makes the plan, is not counted.
    fn new(arena: &Arena, sql: &str) -> Outcome<Self> {
        let mut client = arena.connect()?;
        let statement = client.prepare(sql).doing(|| "preparing".into())?;
        let mut asked = Self { client, statement };
        asked.ask()?;
        Ok(asked)
    }

    fn ask(&mut self) -> Outcome<()> {
        self.client.query(&self.statement, &[]).doing(|| "asking what waits".into())?;
        Ok(())
    }

    fn milliseconds(&mut self) -> Outcome<f64> {
        let began = Instant::now();
        (0..ANSWERS).try_for_each(|_| self.ask())?;
        Ok(began.elapsed().as_secs_f64() * 1e3 / f64::from(ANSWERS))
    }
}
