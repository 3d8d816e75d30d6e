//! A transaction that somebody forgot: while it is open nothing that dies can be cleaned away, and the front
//! of every queue fills with the dead. What does moving an event cost after a while?

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::holder::Holder;
use crate::arena::{Arena, Fill};
use crate::bench::{Bench, RUNS};
use crate::failure::Outcome;
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::system::Worker;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    synchronous_commit: Commit,
    batch: i32,
    payload: usize,
    /// Events that are measured together.
    window: Sized,
    pub flows: Vec<Flow>,
    chart: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub system: String,
    holder: Holder,
    /// How many events go through, unless that takes longer than so many seconds.
    events: Sized,
    seconds: Sized,
    /// Whether a backend that connects at the end is measured too.
    #[serde(default)]
    newcomer: bool,
}

/// Events are added in portions, so that there is a short queue all the time.
const PORTION: u64 = 1_000;

impl Held {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        for flow in &self.flows {
            if let Some(arena) = bench.arena(&flow.system, self.synchronous_commit, findings)? {
                self.flow(bench, flow, arena, findings)?;
            }
        }
        Ok(())
    }

    fn flow(&self, bench: &Bench, flow: &Flow, arena: Arena, findings: &mut Findings) -> Outcome<()> {
        let label = format!("{}, {}", flow.system, flow.holder.name());
        let title = format!("{} ({} held)", arena.system.title, flow.holder.name());
        let (events, window) = (flow.events.of(bench.quick), self.window.of(bench.quick));
        let limit = Duration::from_secs(flow.seconds.of(bench.quick));
        let mut queue = Queue::new(arena, self.batch, payload::json(self.payload, 1))?;

        // As it would be after a while without a holder: warm, cleaned up and analysed.
        queue.window(PORTION)?;
        queue.vacuum()?;
        let holder = flow.holder.begin(queue.arena.connect()?)?;
        let (began, mut moved, mut windows) = (Instant::now(), 0, Vec::new());
        while moved < events && began.elapsed() < limit {
            bench.progress.at(&format!("{title}: {moved} of {events} events"));
            let micros = queue.window(window)?;
            moved += window;
            findings.point(&self.chart, &title, moved as f64, micros);
            windows.push(micros);
        }
        for micros in windows.iter().take(RUNS) {
            findings.add(&format!("{label}: first"), Measure::Time, self.payload, *micros);
        }
        for micros in windows.iter().rev().take(RUNS) {
            findings.add(&format!("{label}: last"), Measure::Time, self.payload, *micros);
        }
        if moved < events {
            findings.note(format!(
                "{title}: stopped after {moved} of {events} events, since {} s were over; its last windows are those before that.",
                limit.as_secs()
            ));
        }
        if flow.newcomer {
            self.newcomer(&mut queue, window, &label, findings)?;
        }
        drop(holder);
        Ok(())
    }

    /// A backend that knows nothing of what went before. Its first claim may look for itself.
    fn newcomer(&self, queue: &mut Queue, window: u64, label: &str, findings: &mut Findings) -> Outcome<()> {
        queue.worker = queue.arena.worker("newcomer", self.batch)?;
        queue.add(PORTION)?;
        let began = Instant::now();
        let taken = queue.worker.claim()?;
        let first = began.elapsed().as_secs_f64() * 1e3;
        findings.add(&format!("{label}: newcomer"), Measure::First, self.payload, first);
        queue.worker.complete()?;
        queue.worker.drain(PORTION - taken)?;
        for _ in 0..RUNS {
            let micros = queue.window(window)?;
            findings.add(&format!("{label}: newcomer"), Measure::Time, self.payload, micros);
        }
        Ok(())
    }
}

struct Queue {
    arena: Arena,
    worker: Box<dyn Worker>,
    batch: i32,
    text: String,
}

impl Queue {
    fn new(arena: Arena, batch: i32, text: String) -> Outcome<Self> {
        let worker = arena.worker("worker", batch)?;
        Ok(Self { arena, worker, batch, text })
    }

    fn add(&mut self, events: u64) -> Outcome<()> {
        self.arena.fill(Fill::Waiting, events, &self.text, self.batch)
    }

    fn vacuum(&mut self) -> Outcome<()> {
        self.arena.vacuum()
    }

    /// Microseconds that claiming and completing took an event, over so many events.
    fn window(&mut self, events: u64) -> Outcome<f64> {
        let (mut spent, mut left) = (Duration::ZERO, events);
        while left > 0 {
            let portion = left.min(PORTION);
            self.add(portion)?;
            let began = Instant::now();
            self.worker.drain(portion)?;
            spent += began.elapsed();
            left -= portion;
        }
        Ok(spent.as_secs_f64() * 1e6 / events as f64)
    }
}
