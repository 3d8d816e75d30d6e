//! Two sides that take turns: each works off a queue of its own, and a window of the one is compared with the
//! window of the other that ran beside it. The last fifth of a side's windows is compared with its first fifth.

use std::time::Instant;

use serde::Deserialize;

use crate::arena::{Arena, Fill, side_by_side};
use crate::bench::Bench;
use crate::failure::{Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::system::Worker;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    synchronous_commit: Commit,
    payload: usize,
    pairs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    batch: i32,
    /// How many are claimed and completed, after a first batch.
    events: Sized,
    /// Of so many aggregates, and all there before the first claim. Otherwise they come in portions, each when the
    /// last is done.
    aggregates: Option<Sized>,
    sides: Vec<Side>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    /// How its figures are called.
    name: String,
    system: String,
    /// What is there before and stays.
    ahead: Option<Crowd>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Crowd {
    fill: Fill,
    events: Sized,
    aggregates: Option<Sized>,
}

/// Fifths of five windows each, so that they are compared by a median of five.
const WINDOWS: u64 = 25;

impl Turns {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        self.pairs.iter().try_for_each(|pair| self.pair(bench, pair, findings))
    }

    /// The systems that it names.
    #[cfg(test)]
    pub fn systems(&self) -> Vec<&str> {
        self.pairs.iter().flat_map(|pair| &pair.sides).map(|side| side.system.as_str()).collect()
    }

    fn pair(&self, bench: &Bench, pair: &Pair, findings: &mut Findings) -> Outcome<()> {
        let text = payload::json(self.payload, 1);
        let mut queues = Vec::new();
        for side in &pair.sides {
            if let Some(arena) = bench.arena(&side.system, self.synchronous_commit, findings)? {
                let worker = arena.worker("worker", pair.batch)?;
                queues.push(Queue { side, pair, arena, worker, waiting: 0, quick: bench.quick, text: &text });
            }
        }
        bench.progress.at(&format!("{}: filling", pair.name()));
        side_by_side(&mut queues, Queue::fill)?;
        for queue in &mut queues {
            let milliseconds = queue.first_claim()?;
            findings.add(&queue.side.name, Measure::First, self.payload, milliseconds);
        }
        for window in 0..WINDOWS {
            bench.progress.at(&format!("{}: window {} of {WINDOWS}", pair.name(), window + 1));
            for queue in &mut queues {
                let micros = queue.window(window)?;
                let name = &queue.side.name;
                findings.add(name, Measure::Time, self.payload, micros);
                if let Some(fifth) = fifth(window) {
                    findings.add(&format!("{name}: {fifth}"), Measure::Time, self.payload, micros);
                }
            }
            queues.rotate_left(1);
        }
        Ok(())
    }
}

impl Pair {
    fn name(&self) -> String {
        self.sides.iter().map(|side| side.name.as_str()).collect::<Vec<_>>().join(" / ")
    }
}

fn fifth(window: u64) -> Option<&'static str> {
    match window * 5 / WINDOWS {
        0 => Some("first fifth"),
        4 => Some("last fifth"),
        _ => None,
    }
}

/// A side at work.
struct Queue<'p> {
    side: &'p Side,
    pair: &'p Pair,
    arena: Arena,
    worker: Box<dyn Worker>,
    /// How many wait that this worker is to move.
    waiting: u64,
    quick: bool,
    text: &'p str,
}

impl Queue<'_> {
    fn fill(&mut self) -> Outcome<()> {
        if let Some(ahead) = self.side.ahead {
            self.add(ahead.fill, ahead.events.of(self.quick), ahead.aggregates)?;
        }
        if self.pair.aggregates.is_some() {
            self.arrive(self.pair.events.of(self.quick) + self.batch())?;
        } else {
            self.arrive(self.batch())?;
        }
        self.arena.vacuum()
    }

    fn add(&mut self, kind: Fill, events: u64, aggregates: Option<Sized>) -> Outcome<()> {
        match aggregates {
            Some(count) => self.arena.fill_aggregates(kind, events, self.text, count.of(self.quick)),
            None => self.arena.fill(kind, events, self.text, self.pair.batch),
        }
    }

    /// Adds events that are to be moved.
    fn arrive(&mut self, events: u64) -> Outcome<()> {
        let kind = if self.pair.aggregates.is_some() { Fill::Aggregates } else { Fill::Waiting };
        self.add(kind, events, self.pair.aggregates)?;
        self.waiting += events;
        Ok(())
    }

    fn batch(&self) -> u64 {
        self.pair.batch as u64
    }

    /// Milliseconds of the session's first claim, which makes the plans and finds its way. It is no part of a window.
    fn first_claim(&mut self) -> Outcome<f64> {
        let began = Instant::now();
        let taken = self.worker.claim()?;
        let milliseconds = began.elapsed().as_secs_f64() * 1e3;
        self.waiting -= taken;
        if taken > 0 {
            self.worker.complete()?;
        }
        self.drain(self.batch() - taken)?;
        Ok(milliseconds)
    }

    /// Microseconds an event.
    fn window(&mut self, number: u64) -> Outcome<f64> {
        let share = match self.pair.aggregates {
            Some(_) => self.waiting / (WINDOWS - number),
            None => {
                self.arrive(self.pair.events.of(self.quick) / WINDOWS)?;
                self.waiting
            }
        };
        let began = Instant::now();
        let moved = self.drain(share)?;
        Ok(began.elapsed().as_secs_f64() * 1e6 / moved as f64)
    }

    /// Moves so many events, or some more when a batch does not end there; how many. A claim may come back empty
    /// while a sweep has yet to find what waits: that costs time, and is no error.
    fn drain(&mut self, events: u64) -> Outcome<u64> {
        let (mut moved, mut empty) = (0, 0);
        while moved < events {
            let taken = self.worker.step()?;
            moved += taken;
            empty = if taken > 0 { 0 } else { empty + 1 };
            if empty > MOST_EMPTY {
                let name = &self.side.name;
                return Err(Failure::new(format!("{name}: {moved} of {events} events were found")));
            }
        }
        self.waiting -= moved;
        Ok(moved)
    }
}

/// After so many empty claims, one after the other, nothing more will come.
const MOST_EMPTY: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifths_have_five_windows() {
        let count = |name| (0..WINDOWS).filter(|&window| fifth(window) == Some(name)).count();
        assert_eq!((count("first fifth"), count("last fifth")), (5, 5));
        assert_eq!(
            (fifth(4), fifth(5), fifth(19), fifth(20)),
            (Some("first fifth"), None, None, Some("last fifth"))
        );
    }
}
