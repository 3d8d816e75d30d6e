//! Many workers against few: do they stand in each other's way?

use std::sync::Barrier;
use std::time::Instant;

use serde::Deserialize;

use crate::arena::{Arena, Fill};
use crate::bench::{Bench, RUNS};
use crate::failure::{Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::system::Worker;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    pub contestants: Vec<String>,
    synchronous_commit: Commit,
    batch: i32,
    payload: usize,
    events: Sized,
    crews: Vec<usize>,
}

impl Workers {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        for mut arena in bench.arenas(&self.contestants, self.synchronous_commit, findings)? {
            let mut crews = Vec::new();
            for &count in &self.crews {
                crews.push(self.crew(&arena, count)?);
            }
            for run in 1..=RUNS {
                for crew in &mut crews {
                    let (title, count) = (&arena.system.title, crew.len());
                    bench.progress.at(&format!("{title}, {count} workers: run {run}"));
                    let throughput = self.once(bench, &mut arena, crew)?;
                    let series = format!("{}, {count} workers", arena.system.name);
                    findings.add(&series, Measure::Throughput, self.payload, throughput);
                }
            }
        }
        Ok(())
    }

    fn crew(&self, arena: &Arena, count: usize) -> Outcome<Vec<Box<dyn Worker>>> {
        (1..=count).map(|number| arena.worker(&format!("worker {number} of {count}"), self.batch)).collect()
    }

    fn once(&self, bench: &Bench, arena: &mut Arena, crew: &mut [Box<dyn Worker>]) -> Outcome<f64> {
        let (text, events) = (payload::json(self.payload, 1), self.events.of(bench.quick));
        arena.empty()?;
        // A batch for each, so that all have their plans.
        arena.fill(Fill::Waiting, self.batch as u64 * crew.len() as u64, &text, self.batch)?;
        for worker in &mut *crew {
            worker.step()?;
        }
        arena.fill(Fill::Waiting, events, &text, self.batch)?;
        arena.vacuum()?;
        let (seconds, moved) = race(crew)?;
        if moved < events {
            return Err(Failure::new(format!("{} workers found {moved} of {events} events", crew.len())));
        }
        Ok(moved as f64 / seconds)
    }
}

/// All start together; over when the last has found nothing more.
fn race(crew: &mut [Box<dyn Worker>]) -> Outcome<(f64, u64)> {
    let barrier = Barrier::new(crew.len() + 1);
    let (began, results) = std::thread::scope(|scope| {
        let threads: Vec<_> = crew
            .iter_mut()
            .map(|worker| {
                scope.spawn(|| {
                    barrier.wait();
                    until_empty(worker.as_mut())
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        (began, threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut moved = 0;
    for result in results {
        moved += result.map_err(|_| Failure::new("a worker panicked"))??;
    }
    Ok((seconds, moved))
}

fn until_empty(worker: &mut dyn Worker) -> Outcome<u64> {
    let mut moved = 0;
    loop {
        match worker.step()? {
            0 => return Ok(moved),
            taken => moved += taken,
        }
    }
}
